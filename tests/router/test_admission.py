"""What stands between a whole request and the choice of its worker."""

import pytest

from tests.support.client import HELLO
from tests.support.stories import Desk


async def test_a_prompt_that_cannot_be_read_is_routed_by_load(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    journey, _ = desk.open()

    def broken(path: str, body: bytes) -> None:
        raise RecursionError

    monkeypatch.setattr(journey, "dialect", type("Broken", (), {"read": staticmethod(broken), "native": False})())
    journey.feed(HELLO)
    journey.complete()
    assert desk.chosen == ["w0"]
