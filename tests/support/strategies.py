"""What Hypothesis draws for the property tests; how it draws is said in `tests/conftest.py`."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from router.core.fingerprint import fingerprint
from router.core.health import Signal
from router.types import Fingerprint

MANY, FEW = settings(max_examples=300), settings(max_examples=25)

texts = st.text(st.characters(), max_size=200)  # any code point, lone surrogates too
names = st.sampled_from([f"w{at}" for at in range(12)])
seeds = st.integers(0, 2**64 - 1)
keys = st.integers(0, 2**64 - 1)
prompts = st.binary(max_size=3000)
moments = st.floats(0, 1e6, allow_nan=False)
signals = st.sampled_from(list(Signal))

json_scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
json_values: st.SearchStrategy[Any] = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)

FIELDS = (
    "messages", "model", "stream", "tools", "cache_salt", "prompt_cache_key", "prompt", "input", "system",
    "instructions", "query", "text_1", "role", "content", "type", "text", "tool_calls", "name", "tool_call_id",
)  # fmt: skip

requests: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(FIELDS),
    st.recursive(
        json_scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
        max_leaves=16,
    ),
    max_size=6,
)
"""JSON objects with the field names that dialects read and anything at all as their values."""


@st.composite
def fingerprints(draw: st.DrawFn) -> Fingerprint:
    """Fingerprints that share beginnings: texts of one letter with one break somewhere."""
    length = draw(st.integers(0, 2500))
    at = draw(st.integers(0, 2500))
    return fingerprint(b"a" * min(length, at) + b"b" * max(0, length - at), draw(st.integers(0, 2)))
