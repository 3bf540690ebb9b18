"""Where Envoy asks."""

import pytest
from pydantic import ValidationError

from router.sections.picker import Picker


def test_unless_told_otherwise_it_fails_closed_and_nothing_listens_beside_it() -> None:
    assert not Picker().fail_open
    assert Picker().http_port is None


@pytest.mark.parametrize("field", ["port", "http_port"])
def test_a_port_is_a_port(field: str) -> None:
    with pytest.raises(ValidationError):
        Picker.model_validate({field: 65_536})


def test_fallbacks_are_few() -> None:
    assert Picker(fallbacks=0).fallbacks == 0
    with pytest.raises(ValidationError):
        Picker(fallbacks=9)
