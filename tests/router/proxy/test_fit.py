"""Whether the installed uvicorn fits the fast lane."""

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.proxy import fit
from router.proxy.protocol import FastLane


def test_the_installed_one_does() -> None:
    assert fit.missing_attributes() == []


def test_everything_that_the_lane_overrides_is_checked() -> None:
    """What uvicorn would call under another name would never be called here."""
    taken = {name for name in vars(FastLane) if name in vars(HttpToolsProtocol) and callable(vars(FastLane)[name])}
    assert taken - {"__init__"} <= set(fit.METHODS)  # the constructor is called by the check itself


@pytest.mark.parametrize("name", ["_unset_keepalive_if_required", "_start_asgi_task"])
def test_a_method_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(HttpToolsProtocol, name)
    assert fit.missing_attributes() == [name]


def test_an_attribute_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "USED", (*fit.USED, "a_new_one"))
    assert fit.missing_attributes() == ["a_new_one"]


def test_a_constructor_of_another_shape_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(self: object) -> None:
        """Takes nothing."""

    monkeypatch.setattr(HttpToolsProtocol, "__init__", another)
    assert fit.missing_attributes() == ["its constructor (TypeError)"]
