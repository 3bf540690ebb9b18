"""What a measurement hands to those who show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.bench_decoding.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A mode on a set at a batch size. `batch`: rows at a time."""

    of: str
    batch: int
    mode: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Setting:
    """Under what the figures were measured. `said`: all of it, for JSON."""

    said: Mapping[str, Any]

    @property
    def by_cpu(self) -> bool:
        return bool(self.said["clock"] == "cpu")

    @property
    def line(self) -> str:
        said = self.said
        threads = f"{said['threads']} thread{'s' if said['threads'] > 1 else ''}"
        where = threads if said["device"] == "cpu" else said["device"]
        rounds = f"{said['rounds']} round{'s' if said['rounds'] > 1 else ''}"
        return (
            f"{said['model']}, {said['dtype']}, {where}; {said['prompts']} prompts a set, answers of up to "
            f"{said['tokens']} tokens, {rounds}"
        )
