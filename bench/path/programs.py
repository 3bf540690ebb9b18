"""The two programs in C, built anew when their source changes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


class CannotBuildError(Exception):
    """Says what is missing, or what the compiler said."""


def build(name: str, folder: Path) -> Path:
    """The program `name`.c, in `folder`. Raises CannotBuildError."""
    source = HERE / f"{name}.c"
    text = b"".join(path.read_bytes() for path in (source, *sorted(HERE.glob("*.h"))))
    program = folder / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if program.exists():
        return program
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise CannotBuildError(f"none of {', '.join(COMPILERS)} is here to build bench/path/{name}.c: apt install gcc")
    folder.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(f".{id(program)}")  # renamed when it is whole: others may build the same
    done = subprocess.run([compiler, *FLAGS, "-o", str(fresh), str(source)], capture_output=True, text=True)
    if done.returncode:
        raise CannotBuildError(f"{compiler} could not build {source.name}:\n{done.stderr.strip()}")
    fresh.rename(program)
    return program
