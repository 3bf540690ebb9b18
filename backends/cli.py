"""`prefix-worker`: one subcommand for each kind of worker and each tool beside them, found by its folder.

A folder here with a module `command` joins by its presence: `train_heads` as `train-heads`. That module has `HELP` (one
line), `describe(parser, flags)` and `run(arguments) -> exit status`; heavy imports belong inside `run`.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

import backends
from backends.flags import Flags

EXAMPLE = """example:
  prefix-worker mock --port 9001
  curl http://127.0.0.1:9001/v1/chat/completions \\
    -d '{"messages": [{"role": "user", "content": "Hello"}], "stream": true}'
"""
BAD_COMMAND_LINE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    complaints: list[str] = []
    found, unknown = build_parser(complaints).parse_known_args(arguments)
    complaints += [f"{word}: no such option" for word in unknown]
    if complaints:
        sys.stderr.write("".join(f"prefix-worker: {complaint}\n" for complaint in complaints))
        return BAD_COMMAND_LINE
    status: int = found.run(found)
    return status


def build_parser(complaints: list[str]) -> argparse.ArgumentParser:
    """The whole command line. Bad values end up in `complaints`, all of them."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="prefix-worker",
        description="Workers that speak what a vLLM server speaks, and tools for the one with a real model.",
        epilog=EXAMPLE,
        formatter_class=form,
        allow_abbrev=False,
    )
    shown = f"prefix-worker {version('prefix-router')}"
    parser.add_argument("--version", action="version", version=shown)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in found_commands().items():
        one = commands.add_parser(name, help=command.HELP, formatter_class=form, allow_abbrev=False)
        one.add_argument("--version", action="version", version=shown)
        command.describe(one, Flags(one, complaints))
        one.set_defaults(run=command.run)
    return parser


def found_commands() -> dict[str, ModuleType]:
    """Every folder of this package that has a module `command`, by the folder's name with hyphens."""
    folders = [info.name for info in iter_modules(backends.__path__) if info.ispkg]
    modules = {name.replace("_", "-"): f"backends.{name}.command" for name in folders}
    return {name: import_module(module) for name, module in modules.items() if find_spec(module)}
