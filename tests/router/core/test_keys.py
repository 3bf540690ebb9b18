"""Which tenant a key belongs to."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.keys import Key, Keys
from router.core.rates import Rate
from router.errors import InvalidApiKey

PAIRS = [("red", "sk-red"), ("blue", "sk-blue"), ("ünï", "schlüssel")]
KEYS = Keys(Key(tenant, sha256(key.encode()).digest()) for tenant, key in PAIRS)


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer sk-red"),
        (b"authorization", b"bearer sk-red"),
        (b"authorization", b"BEARER  sk-red "),
        (b"x-api-key", b"sk-red"),
        (b"api-key", b"sk-red"),
    ],
)
def test_a_key_is_found_in_each_of_its_headers(header: tuple[bytes, bytes]) -> None:
    assert KEYS.tenant([(b"host", b"x"), header]) == "red"


def test_each_key_has_its_tenant() -> None:
    assert KEYS.tenant([(b"x-api-key", b"sk-blue")]) == "blue"
    assert KEYS.tenant([(b"x-api-key", "schlüssel".encode())]) == "ünï"


def test_one_good_key_among_others_is_enough() -> None:
    assert KEYS.tenant([(b"authorization", b"Bearer other"), (b"x-api-key", b"sk-red")]) == "red"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"sk-red")],
        [(b"authorization", b"Basic sk-red")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"sk-re")],
        [(b"x-api-key", b"sk-redd")],
        [(b"x-api-key", b"SK-RED")],
        [(b"cookie", b"sk-red")],
    ],
)
def test_without_a_known_key_nobody_comes_in(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(InvalidApiKey) as refused:
        KEYS.tenant(headers)
    assert refused.value.status == 401
    assert "sk-" not in str(refused.value)


def test_the_refusal_says_whether_a_key_was_shown() -> None:
    with pytest.raises(InvalidApiKey, match="needed"):
        KEYS.tenant([])
    with pytest.raises(InvalidApiKey, match="not known"):
        KEYS.tenant([(b"x-api-key", b"nope")])


def test_a_key_brings_what_it_may_and_a_tenant_weighs_as_its_weightiest_key() -> None:
    one, two, other = (sha256(name).digest() for name in (b"one", b"two", b"other"))
    keys = Keys([Key("red", one, True, 2.0), Key("red", two, rate=Rate(5.0)), Key("blue", other, weight=0.5)])
    found = [keys.find([(b"x-api-key", name)]) for name in (b"one", b"two", b"other")]
    assert [key and (key.tenant, key.priority, key.weight) for key in found] == [
        ("red", True, 2.0), ("red", False, 2.0), ("blue", False, 0.5),
    ]  # fmt: skip
    assert [key and key.rate for key in found] == [None, Rate(5.0), None]
    assert {key.digest for key in keys} == {one, two, other}


def test_no_keys_are_open_to_all() -> None:
    assert not Keys()
    assert Keys().tenant([(b"x-api-key", b"anything")]) is None
    assert Keys().tenant([]) is None


def test_the_table_holds_no_key_in_the_clear() -> None:
    assert "sk-red" not in repr(vars(KEYS))
    assert KEYS


@given(st.lists(st.tuples(st.sampled_from([b"authorization", b"x-api-key", b"api-key"]), st.binary(max_size=30))))
def test_any_bytes_are_a_key_or_not(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(InvalidApiKey):
        KEYS.tenant(headers)
