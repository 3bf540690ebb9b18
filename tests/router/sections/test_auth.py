"""Who may ask: a key, or its digest so that the file holds no key."""

from hashlib import sha256
from typing import Any

import pytest
from pydantic import ValidationError

from router.sections.auth import Auth

DIGEST = sha256(b"sk-1").hexdigest()


def auth(*keys: Any) -> Auth:
    return Auth.model_validate({"api_keys": keys})


def test_a_key_and_its_digest_are_the_same_key() -> None:
    plain, digest = auth("sk-1").api_keys + auth({"sha256": DIGEST.upper()}).api_keys
    assert plain.digest() == digest.digest() == sha256(b"sk-1").digest()


def test_a_tenant_may_have_several_keys() -> None:
    keys = auth({"tenant": "red", "key": "a"}, {"tenant": "red", "key": "b"}).api_keys
    assert [key.tenant for key in keys] == ["red", "red"]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (["a", "a"], "the same key is there twice"),
        (["sk-1", {"sha256": DIGEST}], "the same key is there twice"),
        ([""], "an empty key would let everybody in"),
        ([{"tenant": "red"}], "expected key or sha256"),
        ([{"key": "a", "sha256": DIGEST}], "expected key or sha256"),
        ([{"sha256": "abc"}], "expected 64 hexadecimal digits"),
    ],
)
def test_what_would_let_somebody_in_by_mistake_is_refused(keys: list[Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        auth(*keys)


def test_a_key_may_have_limits_and_a_share_of_its_own() -> None:
    (key,) = auth({"key": "a", "priority": True, "weight": 2, "rates": {"requests_per_minute": 60}}).api_keys
    assert key.priority
    assert key.weight == 2
    assert key.rates is not None
    assert key.rates.requests_per_minute == 60
