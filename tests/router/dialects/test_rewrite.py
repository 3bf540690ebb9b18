"""One member of an object set; every other byte as it came."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects._rewrite import with_value

NAME = "cache_salt"
NEW = b'"new"'
MANY = b"9" * 400


def rewritten(body: bytes, **options: bool) -> tuple[bytes, bytes | None]:
    """The new body, and what the old value was."""
    old: list[bytes | None] = []

    def value(raw: bytes | None) -> bytes:
        old.append(raw)
        return NEW

    new = with_value(body, NAME, value, **options)
    return new, old[0] if old else None


REPLACED = {
    "alone": (b'{"cache_salt":"x"}', b'{"cache_salt":"new"}', b'"x"'),
    "with white space": (  # before, between and after
        b' {\n"cache_salt" :\t"x" , "a": 1.0}\r\n', b' {\n"cache_salt" :\t"new" , "a": 1.0}\r\n', b'"x"'),
    "null": (b'{"a":1,"cache_salt":null}', b'{"a":1,"cache_salt":"new"}', b"null"),
    "an object": (b'{"cache_salt":{"cache_salt":[1]},"a":2}', b'{"cache_salt":"new","a":2}', b'{"cache_salt":[1]}'),
    "a big integer": (
        b'{"cache_salt":' + MANY + b',"n":' + MANY + b"}", b'{"cache_salt":"new","n":' + MANY + b"}", MANY),
    "there twice": (
        b'{"cache_salt":"x","a":[],"cache_salt":"y"}', b'{"cache_salt":"new","a":[],"cache_salt":"new"}', b'"y"',
    ),
    "spelled with escapes": (b'{"\\u0063ache_salt":"x"}', b'{"\\u0063ache_salt":"new"}', b'"x"'),
    "all of it in escapes": (
        b'{"\\u0063\\u0061\\u0063\\u0068\\u0065\\u005f\\u0073\\u0061\\u006c\\u0074":1}',
        b'{"\\u0063\\u0061\\u0063\\u0068\\u0065\\u005f\\u0073\\u0061\\u006c\\u0074":"new"}', b"1",
    ),
    "once plain, once with escapes": (
        b'{"cache_salt":"x","cache\\u005Fsalt":"y"}', b'{"cache_salt":"new","cache\\u005Fsalt":"new"}', b'"y"',
    ),
    "beside one that is deeper": (
        b'{"m":[{"cache_salt":"in"}],"cache_salt":"x"}', b'{"m":[{"cache_salt":"in"}],"cache_salt":"new"}', b'"x"',
    ),
    "beside a text of its name": (
        b'{"m":"cache_salt","cache_salt":"x"}', b'{"m":"cache_salt","cache_salt":"new"}', b'"x"',
    ),
    "behind a byte order mark": (b'\xef\xbb\xbf{"cache_salt":"x"}', b'\xef\xbb\xbf{"cache_salt":"new"}', b'"x"'),
    "with NaN": (b'{"a":NaN,"cache_salt":"x"}', b'{"a":NaN,"cache_salt":"new"}', b'"x"'),
}  # fmt: skip
ABSENT = {
    "empty": (b"{}", b'{"cache_salt":"new"}'),
    "nearly empty": (b" { \n} ", b' {"cache_salt":"new" \n} '),
    "others": (b'{ "a": 1}', b'{"cache_salt":"new", "a": 1}'),
    "only deeper": (b'{"m":{"cache_salt":"x"}}', b'{"cache_salt":"new","m":{"cache_salt":"x"}}'),
    "only as a text": (b'{"m":"cache_salt"}', b'{"cache_salt":"new","m":"cache_salt"}'),
    "in a prompt": (
        b'{"m":"say \\"cache_salt\\":\\"x\\""}', b'{"cache_salt":"new","m":"say \\"cache_salt\\":\\"x\\""}',
    ),
    "another case": (b'{"Cache_Salt":1}', b'{"cache_salt":"new","Cache_Salt":1}'),
    "a longer name": (b'{"cache_salts":1,"a_cache_salt":2}', b'{"cache_salt":"new","cache_salts":1,"a_cache_salt":2}'),
    "bytes that are no text": (b'{"m":"\xff\xfe"}', b'{"cache_salt":"new","m":"\xff\xfe"}'),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected", "old"), REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("checked", [True, False])
def test_what_is_there_is_replaced_in_its_place(body: bytes, expected: bytes, old: bytes, checked: bool) -> None:
    assert rewritten(body, checked=checked) == (expected, old)


@pytest.mark.parametrize(("body", "expected"), ABSENT.values(), ids=ABSENT)
@pytest.mark.parametrize("checked", [True, False])
def test_what_is_not_there_is_put_in(body: bytes, expected: bytes, checked: bool) -> None:
    assert rewritten(body, checked=checked) == (expected, None)
    assert rewritten(body, checked=checked, insert=False) == (body, None)


@pytest.mark.parametrize("body", [b"[1]", b'"cache_salt"', b"7", b"null", b' [{"cache_salt": 1}]'])
def test_what_is_no_object_stays_as_it_is(body: bytes) -> None:
    assert rewritten(body) == (body, None)


@pytest.mark.parametrize("body", [
    b"", b"{", b'{"cache_salt"', b'{"cache_salt":', b'{"cache_salt":1', b'{"cache_salt":1,}', b'{"cache_salt":1} x',
    b"{'cache_salt':1}", b"{cache_salt:1}", b'{/*"cache_salt"*/}', b'{"a":"\\x63"}', b'{"a":1 "b":2}', b'{"a" 1}',
    '{"cache_salt":"x"}'.encode("utf-16"), '{"cache_salt":"x"}'.encode("utf-16-le"), b"// {}", b'\0{"a":1}',
    b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
], ids=range(18))  # fmt: skip
def test_what_cannot_be_read_exactly_is_an_error(body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        rewritten(body, checked=False)


def test_millions_of_members_are_not_read_one_by_one() -> None:
    """What would take many seconds, in which nobody else is served, is refused; many such as clients send are not."""
    hidden = b'"cache\\u005fsalt":"x"}'
    assert rewritten(b"{" + b'"a":1,' * 9_000 + hidden)[1] == b'"x"'
    with pytest.raises(ValueError, match="too many members"):
        rewritten(b"{" + b'"a":1,' * 1_000_000 + hidden)


@pytest.mark.parametrize(
    "body", [b'{"cache_salt":1,"cache_salt":2,}', b'{"\\u0063ache_salt":1,}', b'{"cache_salt":1,}']
)
def test_a_name_that_may_be_there_is_never_taken_on_trust(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        rewritten(body, checked=True)


# For any JSON.

texts = st.text(st.characters(exclude_categories=())) | st.sampled_from([NAME, '"cache_salt":', "cache\\u005fsalt"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
spaces = st.text(" \t\r\n", max_size=2)


@st.composite
def spellings(draw: st.DrawFn, text: str) -> str:
    """A text as JSON, some of its characters in escapes."""
    plain = json.dumps(text, ensure_ascii=draw(st.booleans()))
    if not draw(st.booleans()):
        return plain
    return '"' + "".join(f"\\u{ord(c):04x}" if c.isalpha() and c.isascii() else c for c in text) + '"'


@st.composite
def objects(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, Any]]]:
    """An object's bytes, and its members in order, duplicates too."""
    names = draw(st.lists(st.sampled_from([NAME, "model", "prompt", ""]) | st.just(NAME), max_size=4))
    members, written = [], []
    for name in names:
        value = draw(values)
        members.append((name, value))
        spelled = json.dumps(value, ensure_ascii=draw(st.booleans()))
        around = [draw(spaces) for _ in range(4)]
        spelled_name = draw(spellings(name))
        written.append(f"{around[0]}{spelled_name}{around[1]}:{around[2]}{spelled}{around[3]}")
    body = draw(spaces) + "{" + (",".join(written) or draw(spaces)) + "}" + draw(spaces)
    return body.encode("utf-8", "surrogatepass"), members


@given(objects(), st.booleans())
def test_only_this_value_changes(made: tuple[bytes, list[tuple[str, Any]]], checked: bool) -> None:
    body, members = made
    new, old = rewritten(body, checked=checked)

    def read(text: bytes) -> list[tuple[str, Any]]:
        loaded: list[tuple[str, Any]] = json.loads(text.decode("utf-8", "surrogatepass"), object_pairs_hook=list)
        return loaded

    before, after = read(body), read(new)
    had = any(name == NAME for name, _ in members)
    if not had:
        before = [(NAME, None), *before]
    assert repr(after) == repr([(name, "new" if name == NAME else value) for name, value in before])
    assert (old is not None) is had
    assert json.loads(new.decode("utf-8", "surrogatepass"))[NAME] == "new"


@given(objects())
def test_the_bytes_outside_stay(made: tuple[bytes, list[tuple[str, Any]]]) -> None:
    body, members = made
    new, _ = rewritten(body)
    if not any(name == NAME for name, _ in members):
        at = body.index(b"{") + 1
        assert new[:at] == body[:at]
        assert new.endswith(body[at:])
        return
    at = 0
    for piece in new.split(NEW):  # what stood between the values is there still, in order
        found = body.find(piece, at)
        assert found >= at
        at = found + len(piece)
    assert new.startswith(body[: new.index(NEW)])


@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_are_an_object_salted_no_object_or_an_error(body: bytes, checked: bool) -> None:
    try:
        new, _ = rewritten(b"{" + body, checked=False)
    except ValueError:
        return
    assert json.loads(new.decode("utf-8", "surrogateescape"))[NAME] == "new"
