"""Routing: paths passed through are plain, and none of the gateway's own."""

import pytest
from pydantic import ValidationError

from router.sections.routing import Routing


@pytest.mark.parametrize("path", ["/", "/admin/x", "/metrics", "/v1/{x}", "/a b", "/x?y"])
def test_such_a_path_is_not_passed_through(path: str) -> None:
    with pytest.raises(ValidationError):
        Routing(pass_through=(path,))


def test_streams_are_resumed_only_where_that_is_asked_for() -> None:
    assert Routing().resume is False
    assert Routing(resume=True).resume
