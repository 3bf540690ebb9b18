"""What browsers are told."""

from router.proxy.cors import Cors

PAGE = b"https://app.example"
ASKING = [(b"origin", PAGE), (b"access-control-request-method", b"POST")]


def test_a_page_of_a_named_origin_may_call() -> None:
    said = dict(Cors([PAGE.decode()]).headers([(b"origin", PAGE)]))
    assert said[b"access-control-allow-origin"] == PAGE
    assert said[b"vary"] == b"origin"
    assert b"access-control-allow-credentials" not in said


def test_others_are_told_nothing_but_that_it_depends() -> None:
    for headers in ([], [(b"origin", b"https://evil.example")], [(b"origin", b"null")]):
        assert Cors([PAGE.decode()]).headers(headers) == [(b"vary", b"origin")]


def test_where_all_may_it_depends_on_nothing() -> None:
    assert dict(Cors(["*"]).headers([(b"origin", PAGE)]))[b"access-control-allow-origin"] == b"*"
    assert Cors(["*"]).headers([]) == []


def test_a_preflight_is_a_question_of_somebody_who_may() -> None:
    cors = Cors([PAGE.decode()])
    assert cors.preflight(ASKING) is not None
    assert cors.preflight(ASKING[:1]) is None
    assert cors.preflight(ASKING[1:]) is None
    assert cors.preflight([(b"origin", b"null"), ASKING[1]]) is None


def test_only_names_of_headers_are_given_back() -> None:
    cors = Cors(["*"])
    asked = b"access-control-request-headers"
    assert (b"access-control-allow-headers", b"authorization, x-a") in (
        cors.preflight([*ASKING, (asked, b"authorization, x-a")]) or []
    )
    for bad in (b"a\tb", b"a;b", b"x" * 2000, b""):
        names = [name for name, _ in cors.preflight([*ASKING, (asked, bad)]) or []]
        assert b"access-control-allow-headers" not in names, bad
