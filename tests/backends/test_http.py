"""The words of HTTP."""

from backends.http import Request, chunk, head_bytes


def test_the_first_of_repeated_headers_counts_and_case_does_not() -> None:
    request = Request("GET", "/", "1.1", (("X-A", "1"), ("x-a", "2")), b"", keep_alive=True)
    assert request.header("x-A") == "1"
    assert request.header("other") is None


def test_a_path_is_free_of_query_and_escapes() -> None:
    request = Request("GET", "/v1/%6dodels?x=1", "1.1", (), b"", keep_alive=True)
    assert request.path == "/v1/models"


def test_an_unknown_status_still_makes_a_status_line() -> None:
    assert head_bytes(599, [("a", "b")]) == b"HTTP/1.1 599 Unknown\r\na: b\r\n\r\n"
    assert head_bytes(200, []) == b"HTTP/1.1 200 OK\r\n\r\n"


def test_a_chunk_says_its_length_in_hexadecimal() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
