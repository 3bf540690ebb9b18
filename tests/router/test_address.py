"""A worker URL in all its spellings is one address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.address import Address, parse_address
from tests.support.strategies import texts

hosts = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?(\.[a-zA-Z0-9]{1,8}){0,3}", fullmatch=True)
paths = st.sampled_from(["", "/", "/v1", "/v1/", "/base", "/base/", "/base/v1", "/base/v1/", "/a/b"])


@pytest.mark.parametrize(
    "url", ["http://w:1", "http://w:1/", "http://W:1", "HTTP://w:1/v1", "http://w:1/v1/", " http://w:1 "]
)
def test_every_spelling_of_a_worker_is_one_address(url: str) -> None:
    assert parse_address(url) == Address("http", "w", 1, "")


@pytest.mark.parametrize("path", ["/base", "/base/", "/base/v1", "/base/v1/"])
def test_a_base_path_before_v1_is_kept(path: str) -> None:
    assert parse_address("http://w:1" + path).base_path == "/base"


def test_a_path_that_only_ends_like_v1_is_kept() -> None:
    assert parse_address("http://w/xv1").base_path == "/xv1"
    assert parse_address("http://w/v12").base_path == "/v12"


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_the_default_port_is_filled_in(scheme: str, port: int) -> None:
    assert parse_address(f"{scheme}://w") == parse_address(f"{scheme}://w:{port}/")
    assert parse_address(f"{scheme}://w").netloc == f"w:{port}"


def test_ipv6_stands_in_brackets() -> None:
    address = parse_address("http://[2001:DB8::1]:8000/v1")
    assert (address.host, address.netloc) == ("2001:db8::1", "[2001:db8::1]:8000")
    assert address.url == "http://[2001:db8::1]:8000"


def test_credentials_are_read_unescaped_and_never_shown() -> None:
    address = parse_address("http://us%40er:p%3Ass@w:1/base")
    assert address.credentials == "us@er:p:ss"
    assert address.url == "http://w:1/base"
    assert address.netloc == "w:1"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "http://"),
        ("w:1", "http://"),
        ("ftp://w", "http://"),
        ("//w:1", "http://"),
        ("http://", "host"),
        ("http://:80", "host"),
        ("http://w:0", "port"),
        ("http://w:65536", "URL"),
        ("http://w:x", "URL"),
        ("http://[::1", "URL"),
        ("http://w?a=1", "query"),
        ("http://w#a", "query"),
        ("http://w/a b", "space"),
        ("http://w/a\tb", "control"),
        ("http://w/a\r\nx: y", "control"),
        ("http://w/\x7f", "control"),
    ],
)
def test_a_bad_url_is_refused_with_a_sentence_that_says_why(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_address(url)


@given(st.sampled_from(["http", "https"]), hosts, st.none() | st.integers(1, 65535), paths)
def test_an_address_read_again_is_itself(scheme: str, host: str, port: int | None, path: str) -> None:
    url = f"{scheme}://{host}{'' if port is None else f':{port}'}{path}"
    address = parse_address(url)
    assert parse_address(address.url) == address
    assert parse_address(url.replace(host, host.upper(), 1)) == address


@given(texts | texts.map("http://".__add__))
def test_any_text_is_an_address_or_a_value_error(url: str) -> None:
    try:
        address = parse_address(url)
    except ValueError:
        return
    else:
        assert address.host
        assert 1 <= address.port <= 65535
        assert not address.base_path.endswith("/")


@pytest.mark.parametrize("url", ["http://w/a\x85b", "http://w/a\xa0b", "http://w\u2028w/", "http://w/\u200bx"])
def test_an_address_holds_no_invisible_character(url: str) -> None:
    """An address goes into headers, ids and logs, where nobody would see what is wrong with it."""
    with pytest.raises(ValueError, match="a space, a control character or one outside ASCII"):
        parse_address(url)


@pytest.mark.parametrize(
    "url", ["http://u:s3cret/x@w:1", "http://u:s3cret@w:99999", "http://u:s3cret@[w", "http://u:s3cret@w/?a"]
)
def test_what_is_wrong_is_said_without_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no query|not a URL") as wrong:
        parse_address(url)
    assert "s3cret" not in str(wrong.value)


def test_an_address_shows_no_password() -> None:
    assert repr(parse_address("http://u:s3cret@w:1/base")) == "<Address http://w:1/base>"
