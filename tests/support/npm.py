"""Packages of npm that a check needs: installed once by a lock file, and kept outside the repository."""

import os
import shutil
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prefix-router-tests"


def installed(checker: Path, name: str, folder: Path) -> Path:
    """`folder` with the checker's files and its packages, which are kept under `name`.

    Tests that call this are in the xdist group `npm`: one process installs, and no other beside it.
    """
    lock = (checker / "package-lock.json").read_bytes()
    kept = CACHE / name
    stamp = kept / "installed.json"
    if not stamp.exists() or stamp.read_bytes() != lock:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(checker, kept)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(npm, cwd=kept, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        stamp.write_bytes(lock)
    shutil.copytree(checker, folder, dirs_exist_ok=True)
    (folder / "node_modules").symlink_to(kept / "node_modules")
    return folder
