"""One request, from its prompt to its last token: all that it knows and holds, in one object.

A step over a row is `propose` (what could come), `verify` (put the chosen nodes into the pass), `accept` (follow the
model's own choices through them) and `commit` (make the accepted ones part of the past). Before that come the parts of
`prefill`. Nothing of a row lies anywhere else, but for its keys and values, and those lie at its seat.

Cai et al. 2024, with all of it per row: position, mask, acceptance and compaction.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from backends.medusa.candidates import Candidates
from backends.medusa.drafting import Draft
from backends.medusa.kv import Span
from backends.medusa.lookup import Lookup
from backends.medusa.sampling import Sampler
from backends.medusa.tree import Tree, ancestors
from backends.medusa.trust import Trust

LONGEST_LOOKUP = 8  # tokens of a looked-up chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be generated. `ends`: tokens that end the text; `sampler` None is greedy; `logprobs`: alternatives to
    tell of every token, None for no such report."""

    prompt: Sequence[int]
    most_tokens: int
    ends: Collection[int] = ()
    sampler: Sampler | None = None
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A row's part of the next pass: tokens and their positions, and how they see each other."""

    tokens: list[int]
    positions: list[int]
    span: Span


@dataclass(slots=True, eq=False)
class Decoding:
    """`length`: tokens whose keys and values are at the seat. `output`: what was generated; its last token, the root,
    is not computed yet, unless the text was cut at it. `states` [S, D]: what predicted the root."""

    request: Request
    seat: int
    length: int = 0
    output: list[int] = field(default_factory=list)
    states: Tensor | None = None
    finished: Literal["stop", "length"] | None = None
    lookup: Lookup = field(default_factory=Lookup)
    agreed: int = 0  # tokens that the lookup's chain rested on in this step
    tried: Candidates = field(default_factory=lambda: Candidates.after(0))
    path: list[int] = field(default_factory=list)  # accepted nodes of `tried`, root first

    @property
    def prefilling(self) -> bool:
        return self.length < len(self.request.prompt)

    @property
    def root(self) -> int:
        return self.output[-1]

    @property
    def ids(self) -> list[int]:
        """All tokens whose keys and values are at the seat."""
        return [*self.request.prompt, *self.output][: self.length]

    # The prompt, in parts.

    def prefill(self, most: int) -> Work:
        """The next part of the prompt, up to `most` tokens."""
        tokens = list(self.request.prompt[self.length : self.length + most])
        positions = list(range(self.length, self.length + len(tokens)))
        return Work(tokens, positions, Span(self.seat, self.length, len(tokens)))

    def prefilled(self, count: int) -> None:
        """That part is computed."""
        self.length += count

    def begin(self, first: int, states: Tensor) -> list[int]:
        """The prompt is computed and `first` follows it. Returns what is new, as `accept` does."""
        self.lookup.extend(self.request.prompt)
        self.states = states
        return self._take([first])

    # One step.

    def propose(self, tree: Tree | None, draft: Draft | None, index: int, trust: Trust, *, look: bool) -> Candidates:
        """All that could come next: the heads' draft (its row `index`) and what the row's own text suggests. Nothing so
        deep that no token after it is asked for."""
        candidates = Candidates.after(self.root)
        deepest = self.request.most_tokens - len(self.output) - 1
        if draft is not None and tree is not None:
            scores = trust.scored(draft.scores[index], tree.depths)
            asked = [score * (depth <= deepest) for score, depth in zip(scores, tree.depths, strict=True)]
            candidates.add_tree(tree.parents, draft.tokens[index], asked)
        self.agreed = 0
        if look:
            chain, self.agreed = self.lookup.find(self.root, min(LONGEST_LOOKUP, deepest))
            if chain:
                candidates.add_chain(chain, trust.first[self.agreed], trust.further)
        return candidates

    def verify(self, candidates: Candidates, kept: Sequence[int]) -> Work:
        """The kept nodes behind the committed text, each at the position of its depth."""
        self.tried = candidates.subtree(kept)
        count = len(self.tried)
        sees = ancestors(self.tried.parents) if count > 1 else None
        positions = [self.length + depth for depth in self.tried.depths]
        return Work(self.tried.tokens, positions, Span(self.seat, self.length, count, sees))

    def accept(self, choose: Callable[[int, Collection[int]], int]) -> list[int]:
        """Follows the choices from the root as far as they were tried. `choose`: the model's token after a node, given
        its children's tokens. Returns the new tokens: the accepted ones, and one more."""
        self.path, new = [0], []
        while True:
            children = self.tried.children[self.path[-1]]
            token = choose(self.path[-1], children)
            new.append(token)
            if token not in children:
                return new
            self.path.append(children[token])

    def commit(self, new: list[int], states: Tensor) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Takes the root and the accepted tokens into the past; `states` [S, D] are the last accepted node's. Returns
        what is new, cut where the text ends, and which keys and values to move: (seat, from, to)."""
        moves = [
            (self.seat, self.length + node, self.length + place)
            for place, node in enumerate(self.path)
            if node != place
        ]
        self.lookup.extend([self.root, *new[:-1]])
        self.states = states
        taken = self._take(new)
        self.length = min(self.length + len(self.path), len(self.request.prompt) + len(self.output))
        return taken, moves

    def _take(self, new: list[int]) -> list[int]:
        """Adds to the output what still belongs to it."""
        taken: list[int] = []
        for token in new:
            taken.append(token)
            if token in self.request.ends:
                self.finished = "stop"
                break
            if len(self.output) + len(taken) == self.request.most_tokens:
                self.finished = "length"
                break
        self.output += taken
        return taken
