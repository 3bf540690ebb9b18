"""What browsers are shown, and what they are told not to do with it."""

import re
from base64 import b64encode
from hashlib import sha256

from router.pages import INLINE, api_page, headers_for, live_page, shown

EMPTY = {"info": {"title": "T", "version": "1"}, "paths": {}}


def policy(headers: dict[str, str]) -> dict[str, str]:
    parts = [part.strip().partition(" ") for part in headers["content-security-policy"].split(";")]
    return {name: value for name, _, value in parts}


def test_only_what_stands_in_a_page_is_run() -> None:
    html, headers = shown("<style>a</style><script>b()</script>")
    hashes = [f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in (b"a", b"b()")]
    found = policy(headers)
    assert (found["style-src"], found["script-src"], found["default-src"]) == (*hashes, "'none'")
    assert (found["frame-ancestors"], found["base-uri"], found["form-action"]) == ("'none'", "'none'", "'none'")
    assert html == "<style>a</style><script>b()</script>"


def test_the_live_page_needs_nothing_that_its_policy_forbids() -> None:
    html, headers = live_page()
    assert len(INLINE.findall(html)) == len(re.findall(r"<(script|style)\b", html)) == 2
    assert not re.search(r"\s(style|on\w+)=", html), "neither styles nor handlers in attributes"
    assert not re.search(r"(src|href)=\"?(https?:)?//", html), "nothing from anywhere else"
    assert policy(headers)["connect-src"] == "'self'"


def test_the_list_of_routes_names_each_and_loads_nothing() -> None:
    described = {**EMPTY, "paths": {"/a": {"get": {"description": "What <it> does"}, "post": {"summary": "S"}}}}
    html, headers = api_page(described, ["/v1/b"])
    rows = re.findall(r"<td>(\w+)</td><td><code>(.*?)</code></td><td>(.*?)</td>", html)
    assert rows == [("GET", "/a", "What &lt;it&gt; does"), ("POST", "/a", "S"), ("POST", "/v1/b", "goes to a worker")]
    assert "<script" not in html
    assert not re.search(r"https?://", html)
    assert "script-src" not in policy(headers)


def test_admin_answers_are_kept_by_nobody() -> None:
    assert dict(headers_for("/admin/workers"))[b"cache-control"] == b"no-store"
    for path in ("/admin", "/metrics", "/v1/models", "/"):
        assert dict(headers_for(path))[b"x-content-type-options"] == b"nosniff"
