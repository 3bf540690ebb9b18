"""EndpointSlices as the API tells them: a list for the whole, a line for a change."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.discovery.slices import Slices, Trouble
from tests.support.kube_api import pod, slice_of


def listed(*slices: dict[str, Any], version: str = "7") -> bytes:
    return json.dumps({"kind": "EndpointSliceList", "metadata": {"resourceVersion": version}, "items": slices}).encode()


def line(kind: str, content: Any, version: str = "8") -> bytes:
    if isinstance(content, dict) and "metadata" in content:
        content = {**content, "metadata": {**content["metadata"], "resourceVersion": version}}
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def names(slices: Slices) -> list[str]:
    return sorted(each.metadata.name for each in slices.all())


@pytest.fixture
def slices() -> Slices:
    made = Slices()
    made.replace(listed(slice_of("a", pod("vllm-0", "10.0.0.1")), slice_of("b")))
    return made


def test_before_a_list_nothing_is_known_and_no_state_to_go_on_from() -> None:
    assert (list(Slices().all()), Slices().version) == ([], None)


def test_a_list_is_the_whole(slices: Slices) -> None:
    assert (names(slices), slices.version) == (["a", "b"], "7")
    slices.replace(listed(slice_of("c"), version="9"))
    assert (names(slices), slices.version) == (["c"], "9")


def test_a_slice_is_read_with_its_conditions_its_pod_and_its_place(slices: Slices) -> None:
    slices.replace(listed(slice_of("a", pod("vllm-0", "10.0.0.1", terminating=True, zone="z1"))))
    (found,) = slices.all()
    (endpoint,) = found.endpoints or ()
    assert endpoint.addresses == ["10.0.0.1"]
    assert endpoint.conditions is not None
    assert (endpoint.conditions.ready, endpoint.conditions.terminating) == (True, True)
    assert endpoint.target_ref is not None
    assert (endpoint.target_ref.kind, endpoint.target_ref.name) == ("Pod", "vllm-0")
    assert (endpoint.zone, endpoint.node_name) == ("z1", "node-in-z1")


def test_changes_add_replace_and_remove(slices: Slices) -> None:
    assert slices.apply(line("ADDED", slice_of("c"), "8"))
    assert slices.apply(line("MODIFIED", slice_of("a", port=9), "9"))
    assert slices.apply(line("DELETED", slice_of("b"), "10"))
    assert (names(slices), slices.version) == (["a", "c"], "10")
    assert next(each.ports for each in slices.all() if each.metadata.name == "a")[0].port == 9  # type: ignore[index]


def test_what_is_there_twice_or_not_there_is_taken_as_it_comes(slices: Slices) -> None:
    assert slices.apply(line("ADDED", slice_of("a")))
    assert slices.apply(line("DELETED", slice_of("never")))
    assert names(slices) == ["a", "b"]


def test_a_bookmark_moves_on_and_changes_nothing(slices: Slices) -> None:
    assert not slices.apply(line("BOOKMARK", {"kind": "EndpointSlice", "metadata": {}}, "20"))
    assert (names(slices), slices.version) == (["a", "b"], "20")


@pytest.mark.parametrize(
    "bad", [b"", b"<html>", b"{}", b"[]", b"\xff", listed()[:-5], listed(version=""), json.dumps({
        "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}).encode()],
)  # fmt: skip
def test_a_list_that_is_none_changes_nothing(slices: Slices, bad: bytes) -> None:
    with pytest.raises(Trouble) as told:
        slices.replace(bad)
    assert not told.value.gone
    assert (names(slices), slices.version) == (["a", "b"], "7")


def test_a_state_that_is_gone_is_told(slices: Slices) -> None:
    with pytest.raises(Trouble, match="gone") as told:
        slices.apply(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
    assert told.value.gone


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"code": 500, "reason": "InternalError", "message": "s3cret"}, "InternalError (500)"),
        ({"code": 500, "reason": "a\nline s3cret"}, "an error (500)"),
        ({}, "an error (0)"),
    ],
)
def test_other_errors_are_told_by_name_alone(slices: Slices, status: dict[str, Any], words: str) -> None:
    with pytest.raises(Trouble) as told:
        slices.apply(line("ERROR", status))
    assert words in str(told.value)
    assert "s3cret" not in str(told.value)
    assert told.value.gone


@pytest.mark.parametrize(
    "bad",
    [b"\n", b"{}\n", b'{"type": "ADDED", "object": {}}\n', b'{"type": "ADDED"}\n', b'{"type": "ADDED", "object"\n',
     line("WHAT", slice_of("a")), line("ERROR", 7), line("BOOKMARK", {}), b"\xff\xfe\n"],
)  # fmt: skip
def test_a_line_that_is_none_asks_for_a_list(slices: Slices, bad: bytes) -> None:
    with pytest.raises(Trouble) as told:
        slices.apply(bad)
    assert told.value.gone
    assert names(slices) == ["a", "b"]


STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove", "bookmark", "list", "error"]), st.sampled_from("abc")))


@given(STEPS)
def test_whatever_happens_in_whatever_order_it_stays_equal_to_what_the_api_has(steps: list[tuple[str, str]]) -> None:
    slices, there = Slices(), dict[str, dict[str, Any]]()
    slices.replace(listed(version="0"))
    for at, (step, name) in enumerate(steps, start=1):
        version = str(at)
        if step == "put":
            kind = "MODIFIED" if name in there else "ADDED"
            there[name] = slice_of(name, port=at)
            assert slices.apply(line(kind, there[name], version))
        elif step == "remove" and name in there:
            assert slices.apply(line("DELETED", there.pop(name), version))
        elif step == "bookmark":
            assert not slices.apply(line("BOOKMARK", {"metadata": {}}, version))
        elif step == "error":
            with pytest.raises(Trouble):
                slices.apply(line("ERROR", {"code": 410}))
            continue
        else:
            slices.replace(listed(*there.values(), version=version))
        assert slices.version == version
        assert {each.metadata.name: (each.ports or [])[0].port for each in slices.all()} == {
            each["metadata"]["name"]: each["ports"][0]["port"] for each in there.values()
        }
