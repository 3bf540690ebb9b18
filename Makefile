# `make demo` and `make test` do all their own set-up; nothing but Python 3.11+ is needed.
PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements-dev.lock
WORKERS ?= 3

.PHONY: demo test test-vllm check format bench bench-overload soak fuzz compose lock clean

demo: .venv/.ready  ## the gain in half a minute: mock workers, a gateway, random against the default policy
	@$(BIN)/prefix-router demo $(DEMO_ARGS)

test: check  ## every test; what needs a program of the system is skipped by name where that is missing
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(TEST_ARGS)

test-vllm: .venv/.ready  ## the same on two real vLLM servers; installs 3.5 GB the first time
	@sh bench/vllm_setup.sh
	@REAL_VLLM=1 $(BIN)/pytest tests/e2e/test_vllm.py

check: .venv/.ready  ## the one gate: format, lint, strict types, the floors of the house
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/pytest -q --no-header tests/house

format: .venv/.ready
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv/.ready  ## CPU per request, and microseconds a decision, on this machine
	@$(BIN)/python bench/cpu.py $(BENCH_ARGS)
	@$(BIN)/python bench/decision.py
	@$(BIN)/python bench/memory.py

fuzz: .venv/.ready  ## many random inputs for both HTTP parsers; FUZZ_INPUTS=100000 FUZZ_SEED=2 for more and others
	@FUZZ_INPUTS=$${FUZZ_INPUTS:-20000} $(BIN)/pytest -n $(WORKERS) tests/fuzz

soak: .venv/.ready  ## ten minutes of mixed load while things go wrong; SOAK_ARGS="--seconds 60" for less
	@$(BIN)/python -m bench.soak $(SOAK_ARGS)

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

lock:  ## resolve the lock files anew (needs uv)
	uv pip compile pyproject.toml --universal --extra events --extra redis --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o requirements.lock
	uv pip compile pyproject.toml --universal --extra events --extra redis --extra plot --group dev --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o requirements-dev.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
