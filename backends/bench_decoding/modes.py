"""What is compared: plain decoding, and the ways to draft."""

from collections.abc import Mapping
from dataclasses import dataclass

BUDGET = 64  # nodes a step verifies at most, over all rows, as the worker has it
PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """`heads`: which file of heads drafts, by its flag; None: none does. `look`: rows look guesses up in their own
    text. `whole`: nodes of a tree that every step verifies whole, for every row, whether it pays or not; 0: the budget
    picks the nodes of every step, and the switch stops drafting where it does not pay, as in the worker."""

    about: str
    heads: str | None = None
    look: bool = False
    whole: int = 0

    def most_nodes(self, batch: int) -> int:
        """Over all rows of a step."""
        return max(BUDGET, self.whole * batch)


MODES: Mapping[str, Mode] = {
    PLAIN: Mode(about="greedy, one token a row and step: the same code with nothing that drafts"),
    "hydra": Mode(
        about="heads of --heads and lookup, under the budget, as the worker decodes", heads="heads", look=True
    ),
    "hydra-no-lookup": Mode(about="the same without lookup", heads="heads"),
    "lookup": Mode(about="lookup alone, without heads", look=True),
    "medusa": Mode(about="as hydra, with the heads of --heads-medusa", heads="heads_medusa", look=True),
    "hydra-tree-8": Mode(about="a fixed tree of 8 nodes a row in every step, from --heads", heads="heads", whole=8),
}
