"""The default: the ring proposes, a cost decides.

    cached(w)  = the deepest rung of this prompt that w holds
    new(w)     = tokens to compute on w, at least 5% of the prompt
    cost(w)    = wait(w) + 4 * new(w) beyond the hot prefix + 0.5 * new(w) within it
                 + (tokens nobody holds) * recent traffic of w, relative to the mean and smoothed
    choose the least cost; a prompt nobody knows ("cold"): the least wait(w) + prompt * traffic(w) / mean traffic

Why 4 and not 1: with the greedy least time to first token prefixes get copied everywhere and the caches thrash; a copy
of a *hot* prefix will be used again wherever it is, so it costs less than it takes to compute. Why the traffic term: a
worker keeps what it computes, so tokens nobody holds yet are better placed where less comes together; it is smoothed
by sixteen prompts of this length, so that it is silent while little has been sent. Waits are measured in prefill
tokens, since prompts differ a hundredfold in length.

Where other gateways send to the same workers and do not share what they know, the home is trusted with a learnt share
of what it is not known to hold, whoever else is known to hold it: the ring makes all of them meet there, and a prefix
that has copies elsewhere returns. In the cost that share counts half as much again, since what is computed at home is
found by the others, who look there too.

Costs are divided by each worker's speed, so that they compare as times do. When the least costly worker would break
the promise on the time to first token and another would keep it, the least costly of those that keep it is taken.

Costs within 1% of the prompt are ties, and ties fall in ring order: among workers that hold something, in the ring
order of the first rung, so that equal holders are always asked in the same order and a prefix returns home after a
spill; among the others, in that of the key. Of a hot prefix only those with the fewest requests in flight are equal.

The rule is worked out in `core/price.py` and `core/cheapest.py`, which looks at few workers of many.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from router.contracts import PolicyTools
from router.core.cheapest import Cheapest
from router.core.price import Weights


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    factor: float = Field(4.0, ge=0, description="what computing a token again costs, against waiting for one")
    hot_factor: float = Field(0.5, ge=0, description="the same within a hot prefix")
    keep_slo: bool = Field(True, description="leave a warm worker whose wait would break routing.slo")
    smoothing: float = Field(16.0, ge=0, description="prompts of this length that smooth the recent traffic")


def build(options: Options, tools: PolicyTools) -> Cheapest:
    weights = Weights(options.factor, options.hot_factor, options.smoothing)
    return Cheapest(tools.ring, weights, tools.slo if options.keep_slo else None)
