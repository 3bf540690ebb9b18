"""What is read of a prompt decides where it goes: all of what the engine will read, in every shape, and no more."""

import asyncio
import base64
import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from router.core.fingerprint import MOST_RUNGS
from router.core.mind import Caller
from tests.support.client import CHAT, Client, post
from tests.support.endpoints import CHAT as CHATS
from tests.support.endpoints import (
    IDS,
    RESPONSES,
    SYSTEM,
    Endpoint,
    forms,
    keys_of,
    parted,
    prompts,
    talks,
)
from tests.support.endpoints import MESSAGES as ANTHROPIC
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.worker import DONE, event, reply
from tests.support.worker import stream as streamed

HASHES: dict[str, Any] = {"log": {"access": "none", "hashes": True}}
BOTH_FORMS = (False, True)


def topic(at: int) -> str:
    return f"Subject number {at}: tell me all that is known of the history of the {at}th of these towns, in order. "


def chat(*messages: Any, path: str = CHAT, **more: Any) -> bytes:
    return post(json.dumps({"model": "m", "messages": messages, **more}).encode(), path)


def plain(path: str = "/v1/completions", **fields: Any) -> bytes:
    return post(json.dumps({"model": "m", **fields}).encode(), path)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def hashing(stage: Stage, workers: int = 1, **settings: Any) -> tuple[Running, Client]:
    """A gateway that tells each prompt's hashes, and a client of it."""
    running = await stage.gateway(*[await stage.worker() for _ in range(workers)], **HASHES, **settings)
    return running, await stage.client(running)


# Content that is a list of parts.


@parted
@forms
async def test_unrelated_chats_in_parts_do_not_all_meet_at_one_worker(
    stage: Stage, endpoint: Endpoint, stream: bool
) -> None:
    running, client = await hashing(stage, 4)
    bodies = [endpoint.in_parts(topic(at), "Go on.", stream=stream) for at in range(20)]
    keys = await keys_of(running, client, [post(body, endpoint.path) for body in bodies])
    assert len(set(keys)) == 20
    places = Counter(event.worker for event in running.finished)
    assert len(places) == 4
    assert max(places.values()) <= 10
    sent = [body for worker in stage.workers for body in worker.bodies]
    assert sorted(sent) == sorted(bodies), "the parts pass as they came"


@parted
async def test_a_string_and_one_text_part_are_the_same_words(stage: Stage, endpoint: Endpoint) -> None:
    running, client = await hashing(stage, 4)
    talk = (topic(1), topic(2), topic(3))
    for at in range(10):
        said, in_parts = endpoint.body(topic(at), *talk), endpoint.in_parts(topic(at), *talk)
        one, other = await keys_of(running, client, [post(said, endpoint.path), post(in_parts, endpoint.path)])
        assert one == other
    assert all(one.worker == two.worker for one, two in zip(*[iter(running.finished)] * 2, strict=True))


PIXELS = [base64.b64encode(Random(at).randbytes(1_500_000)).decode() for at in range(3)]


def picture(form: str, data: str) -> dict[str, Any]:
    if form == "messages":
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    if form == "responses":
        return {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    if form == "audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    if form == "file":
        return {"type": "file", "file": {"file_data": data, "filename": "a.pdf"}}
    if form == "unheard of":
        return {"type": "hologram", "of": {"the": [data, None, 1.5]}}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


@pytest.mark.parametrize(
    ("form", "endpoint"),
    [("chat", CHATS), ("audio", CHATS), ("file", CHATS), ("unheard of", CHATS), ("messages", ANTHROPIC),
     ("responses", RESPONSES)],
)  # fmt: skip
async def test_pictures_sounds_and_files_count_by_a_short_digest(stage: Stage, form: str, endpoint: Endpoint) -> None:
    running, client = await hashing(stage, limits={"body_bytes": 8_000_000})

    def looked_at(data: str, question: str) -> bytes:
        said = endpoint.said("", ())
        field = "input" if "input" in said else "messages"
        turn = user([picture(form, data), {"type": endpoint.part, "text": question}])
        return post(json.dumps({"model": "m", **said, field: [turn]}).encode(), endpoint.path)

    long = topic(1) * 5
    shown = [looked_at(PIXELS[at], long) for at in (0, 1, 0)]
    first, other, again = await keys_of(running, client, shown)
    assert first == again
    assert first[0] != other[0], "another picture is another beginning"
    (further,) = await keys_of(running, client, [looked_at(PIXELS[0], long + topic(2) * 5)])
    assert further[: len(first) - 1] == first[:-1], "what stands behind a picture counts too"
    assert all(event.prompt_bytes < 3000 for event in running.finished), "a digest, not megabytes"
    assert running.finished[0].bytes_in > 1_500_000


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def called(name: str, arguments: str) -> list[Any]:
    """A history that begins with a call and nothing else to tell it by."""
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, user(topic(0))]


async def test_a_turn_without_content_counts_by_its_tool_call(stage: Stage) -> None:
    running, client = await hashing(stage)
    histories = [called("f" * 70, "{}"), called("g" * 70, "{}"), called("f" * 70, '{"x": 1}')]
    keys = await keys_of(running, client, [chat(*history) for history in histories])
    assert len({key[-1] for key in keys}) == 3
    middle = [user(topic(1)), {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    results = [{"role": "tool", "tool_call_id": "c1", "content": text} for text in (topic(2), topic(3))]
    one, other = await keys_of(running, client, [chat(*middle, result, user(topic(4) * 3)) for result in results])
    assert one[0] == other[0]
    assert one[-1] != other[-1]


ALONE: dict[str, list[Any]] = {  # what a chat may consist of, with nothing else to tell it from others
    "text": [user("@")],
    "a part": [user([{"type": "text", "text": "@"}])],
    "a part without a type": [user([{"text": "@"}])],
    "a part of another type": [user([{"type": "input_text", "text": "@"}])],
    "a refusal": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "@"}]}],
    "strings in a list": [user(["@"])],
    "an object": [user({"some": {"thing": "@"}})],
    "an object as a text": [user([{"type": "text", "text": {"value": "@"}}])],
    "parts in parts": [user([[{"type": "text", "text": "@"}]])],
    "a role": [{"role": "@", "content": ""}],
    "a tool's result": [user([{"type": "tool_result", "tool_use_id": "t", "content": "@"}])],
    "a tool's result in parts": [
        user([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "@"}]}])
    ],
    "a tool's use": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": "@"}]}],
    "no message at all": ["@"],
    "odd letters": [user("\ud800\udfff \u202e\x00 Grüße 世界 🌍 @")],
}


@pytest.mark.parametrize("endpoint", [CHATS, ANTHROPIC], ids=["chat", "messages"])
@pytest.mark.parametrize("shape", ALONE)
async def test_no_two_chats_share_a_key_because_nothing_was_read(stage: Stage, endpoint: Endpoint, shape: str) -> None:
    running, client = await hashing(stage)
    bodies = [
        json.dumps({"model": "m", "messages": [*ALONE[shape], user("And then? " * 40)]})
        .replace("@", topic(at))
        .encode()
        for at in range(6)
    ]
    keys = await keys_of(running, client, [post(body, endpoint.path) for body in bodies])
    assert len({key[1] for key in keys}) == 6


# Prompts that are token ids.


def ids(*values: Any) -> bytes:
    return plain(prompt=list(values))


async def test_token_ids_count_by_what_they_are_and_not_by_how_many(stage: Stage) -> None:
    running, client = await hashing(stage, 4)
    dice = Random(3)
    drawn = [[dice.randrange(150_000) for _ in range(400)] for _ in range(30)]
    keys = await keys_of(running, client, [ids(*each) for each in drawn])
    assert len({key[0] for key in keys}) == 30
    assert len({event.worker for event in running.finished}) == 4
    begun = drawn[0][:300]
    one, other = await keys_of(running, client, [ids(*begun, 1, 2, 3), ids(*begun, *drawn[1])])
    assert one[:2] == other[:2], "equal leading ids are a common beginning"


ALIKE: list[tuple[list[Any], list[Any]]] = [
    ([71, 85], [7185]),
    ([101, 7, 8, 9], [55, 1, 2, 3]),
    ([1, 11], [11, 1]),
    ([1, 2], [1, 2, 0]),
    ([[1, 2], [3, 4]], [[1, 2, 3], [4]]),
    ([[1, 2], [3, 4]], [1, 2, 3, 4]),
    ([[1], [2]], [[1, 2]]),
    ([65, 66], ["AB"]),
    (["ab", "c"], ["a", "bc"]),
    (["1", "2"], [1, 2]),
    ([0xD800], [0xDFFF]),
    ([1 << 40, 5], [1 << 40, 6]),
    ([-1, 5], [-1, 6]),
    ([1.0, 2.0], [1, 2]),
    ([True, True], [1, 1]),
]


async def test_no_other_ids_look_like_these(stage: Stage) -> None:
    running = await stage.gateway(*[await stage.worker() for _ in range(3)], routing={"policy": "prefix_bounded"})
    for one, other in ALIKE:
        short = [await key_value(running, each) for each in (one, other)]
        assert short[0] != short[1], (one, other)
        long = [await key_value(running, each * 200) for each in (one, other)]
        assert long[0] != long[1], (one, other)


async def key_value(running: Running, prompt: list[Any]) -> int:
    """The key that decides: what the gateway weighs of the same body."""
    assert (await ask(running.port, ids(*prompt))).status == 200
    house = running.house
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    place = house.paths[b"/v1/completions"]
    return house.mind.weigh(place.dialect.read(place.path, body), Caller(), count=False).key.value


SHAPES: dict[str, list[Any]] = {
    "/v1/completions": ["a", ["a", "b"], [1, 2], [[1, 2], [3, 4]], [], "", [[]], None, {"a": 1}, 5, [1, "a", [2]],
                        [10**30], [-1], [1.5], ["a", None]],
    "/v1/embeddings": ["a", ["a", "b"], [1, 2], [[1, 2], [3, 4]], [{"type": "text", "text": "a"}]],
    "/tokenize": ["a", ["a"], [1]],
    "/v1/responses": ["a", [{"role": "user", "content": "a"}], [{"type": "item_reference", "id": "x"}], []],
}  # fmt: skip


@pytest.mark.parametrize("stream", BOTH_FORMS, ids=["plain", "streaming"])
@pytest.mark.parametrize("path", SHAPES)
async def test_every_legal_shape_reaches_the_worker_byte_for_byte(stage: Stage, path: str, stream: bool) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    client = await stage.client(running)
    field = "input" if path in ("/v1/embeddings", "/v1/responses") else "prompt"
    bodies = [
        b'{"model" :"m", "%s":%s ,"stream":%s}'
        % (field.encode(), json.dumps(shape).encode(), [b"false", b"true"][stream])
        for shape in SHAPES[path]
    ]
    for body in bodies:
        assert (await client.ask(post(body, path))).status == 200, body
    assert worker.bodies == bodies


async def test_a_number_too_long_for_the_gateways_reader_is_the_workers_to_judge(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.gateway(worker)
    bodies = [b'{"model": "m", "prompt": [1, %s]}' % (b"9" * 5000), b'{"model": "m", "seed": %s}' % (b"9" * 5000)]
    for body in bodies:
        assert (await ask(running.port, post(body, "/v1/completions"))).status == 200
    assert worker.bodies == bodies


# Tools.


def tools(kind: str, count: int = 10) -> list[Any]:
    schema = {"type": "object", "properties": {"where": {"type": "string"}, "when": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": f"{kind}_{at}", "description": topic(at), "parameters": schema}}
        for at in range(count)
    ]


@parted
@forms
async def test_tools_are_the_beginning_of_a_prompt(stage: Stage, endpoint: Endpoint, stream: bool) -> None:
    running, client = await hashing(stage, 4)

    def asked(kind: str, question: str) -> bytes:
        return endpoint.request(SYSTEM, question, tools=tools(kind), stream=stream)

    one, other, bare = await keys_of(
        running, client, [asked("weather", "Hello"), asked("stocks", "Hello"), endpoint.request(SYSTEM, "Hello")]
    )
    assert len({one[1], other[1], bare[1]}) == 3, "another set of tools is another beginning"
    questions = [asked("weather", f"Question {at}, of its own?") for at in range(12)]
    keys = await keys_of(running, client, questions)
    assert all(key[: len(one) - 2] == one[: len(one) - 2] for key in keys), "another question is not"
    assert len({event.worker for event in running.finished[-12:]}) == 1


async def test_the_order_of_a_schemas_fields_counts_as_it_does_for_the_engine(stage: Stage) -> None:
    running, client = await hashing(stage)
    (tool,) = tools("weather", 1)
    turned = {"type": "function", "function": dict(reversed(tool["function"].items()))}
    given = [CHATS.request(SYSTEM, "Hello", tools=[each]) for each in (tool, turned, tool)]
    one, other, again = await keys_of(running, client, given)
    assert one == again
    assert one[1] != other[1]


@pytest.mark.parametrize("odd", [{}, [], None, "tools", 5, [None], {"a": {"b": "\ud800"}}, [[[[]]]]], ids=repr)
async def test_tools_of_any_shape_pass(stage: Stage, odd: Any) -> None:
    _, client = await hashing(stage)
    for endpoint in (CHATS, ANTHROPIC, RESPONSES):
        assert (await client.ask(endpoint.request(SYSTEM, "Hello", tools=odd))).status == 200


# Conversations.


@talks
@forms
async def test_each_conversation_keeps_its_worker_and_two_may_have_two(
    stage: Stage, endpoint: Endpoint, stream: bool
) -> None:
    """Two users of one system text; the second comes while the first one's worker has much to read."""
    gate = asyncio.Event()
    held = streamed(gate, event("x"), DONE)
    workers = [await stage.worker(answer=held) for _ in range(3)]
    running = await stage.gateway(*workers)
    talks = [
        [f"I am {name}, and this is what I want to know. " + topic(at) * 250] for at, name in enumerate(["A", "B"])
    ]
    clients = [await stage.client(running) for _ in talks]
    for at, (client, talk) in enumerate(zip(clients, talks, strict=True), 1):
        await client.send(endpoint.request(SYSTEM, *talk, stream=stream))
        await eventually(lambda at=at: sum(worker.running for worker in workers) == at)
    gate.set()
    firsts = [(await client.answer()).one("x-router-worker") for client in clients]
    assert firsts[0] != firsts[1], "the second conversation did not wait for the first one's"
    for worker in workers:
        worker.answer = reply()
    for turn in range(2, 7):
        for at, (client, talk) in enumerate(zip(clients, talks, strict=True)):
            talk += [f"That was answer {turn}.", f"And what of {turn}?"]
            answer = await client.ask(endpoint.request(SYSTEM, *talk, stream=stream))
            assert answer.one("x-router-worker") == firsts[at], f"turn {turn} of conversation {at}"


@prompts
@forms
async def test_a_last_question_of_its_own_scatters_nobody(stage: Stage, endpoint: Endpoint, stream: bool) -> None:
    running, client = await hashing(stage, 4)
    requests = [endpoint.request(SYSTEM, f"Question {at * 7919} of its own, if you please? " * 8, stream=stream)
                for at in range(50)]  # fmt: skip
    keys = await keys_of(running, client, requests)
    assert len({event.worker for event in running.finished}) == 1
    assert len({key[4] for key in keys}) == 1
    assert len({key[-1] for key in keys}) == 50


@prompts
@pytest.mark.parametrize("policy", ["prefix_cost", "prefix_bounded"])
async def test_a_longer_request_goes_where_the_shorter_one_went(stage: Stage, endpoint: Endpoint, policy: str) -> None:
    running, client = await hashing(stage, 4, routing={"policy": policy})
    for at in range(4):
        said = [topic(at) * 3]
        places = set()
        before: tuple[int, ...] = ()
        for turn in range(5):
            (key,) = await keys_of(running, client, [endpoint.request(SYSTEM[at:], *said)])
            places.add(running.finished[-1].worker)
            assert key[: max(0, len(before) - 1)] == before[:-1], "all but the last full block of what came before"
            before = key
            said += [f"That was answer {turn}. " * 9, topic(turn)]
        assert len(places) == 1


# Beginnings that never come again.


@pytest.mark.parametrize(
    "line", ["x-client-header: v=1; nonce={};", "It is now 2026-12-01T{}Z."], ids=["nonce", "time"]
)
async def test_a_beginning_that_changes_each_time_shows_in_reasons_and_metrics(stage: Stage, line: str) -> None:
    """Nothing is cut out of a prompt: the engine's own cache begins at the first byte too."""
    workers = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(*workers, log={"access": "none", "hashes": True})
    client = await stage.client(running)
    dice = Random(11)
    said = ["Hello"]
    sent = []
    for turn in range(10):
        request = CHATS.body(f"{line.format(dice.randrange(10**15))} {SYSTEM}", *said)
        sent.append(request)
        assert (await client.ask(post(request))).one("x-router-reason") == "cold"
        said += [f"That was answer {turn}.", topic(turn)]
    metrics = await running.metrics()
    assert metrics['prefix_router_decisions_total{policy="prefix_cost",reason="cold"}'] == 10
    assert sorted(body for worker in workers for body in worker.bodies) == sorted(sent), "never removed from the body"


async def test_the_same_line_at_the_end_costs_nothing(stage: Stage) -> None:
    running, client = await hashing(stage, 3)
    said = ["Hello"]
    for turn in range(10):
        await client.ask(CHATS.request(SYSTEM, *said[:-1], f"{said[-1]} (nonce {turn * 7919})"))
        said += [f"That was answer {turn}.", topic(turn)]
    assert len({event.worker for event in running.finished}) == 1
    assert "cold" not in {event.reason for event in running.finished[1:]}


# Very long prompts.


async def test_a_very_long_prompt_costs_no_more_hashes_than_the_ladder_has_rungs(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(
        *workers,
        *[f"http://127.0.0.1:{at}" for at in range(9, 71)],
        ready=False,
        health={"interval_seconds": 60},
        **HASHES,
    )
    await running.ready(2)
    client = await stage.client(running)
    words = "one of very many words, " * 45_000
    for endpoint in (CHATS, ANTHROPIC, RESPONSES, IDS):
        given = words if endpoint is not IDS else words[:200_000]
        answer = await client.ask(endpoint.request(given, "Hello"))
        assert answer.status == 200
        finished = running.finished[-1]
        assert finished.hashes is not None
        assert len(finished.hashes) <= MOST_RUNGS
        assert finished.decision_seconds < 2.0
    assert len(running.house.mind.holders) < 4 * 4 * MOST_RUNGS, "and no more is remembered of it"
    assert max(len(body) for worker in workers for body in worker.bodies) > 1_000_000


# Requests that say nothing, or nothing that can be read.


NOTHING: list[bytes] = [
    b"[]", b'"str"', b"null", b"42", b"true", b"{}", b'{"model": "m"}', b'{"model": "m", "messages": []}',
    b'{"model": "m", "messages": null}', b'{"model": "m", "messages": 5}', b'{"model": "m", "messages": [null]}',
    b'{"model": "m", "messages": [[], 1, "a", {"role": []}]}', b'{"model": "m", "messages": [{"content": {"a": NaN}}]}',
    b'{"model": "m", "input": "text"}', b'{"model": "m", "input": [{"role": "user", "content": "q"}]}',
    b'{"model": "m", "input": [{"role": 5}, null, [[]], {"type": "reasoning", "summary": []}]}',
    b'{"model": "m", "prompt": {"prompt": {}}}', b'{"model": "m", "tools": 7, "system": 8, "instructions": 9}',
    b'{"model": "m", "cache_salt": [], "prompt_cache_key": {}, "stream": "yes"}',
    b'{"model": "m", "system": [{"type": "text"}, {"text": null}, null], "messages": [{}]}',
    b'{"model": "m", "messages": [{"role": "user", "content": ' + b"[" * 500 + b"]" * 500 + b"}]}",
    b'{"model": "m", "query": [], "text_1": {}, "documents": [[]]}',
]  # fmt: skip
NO_JSON: list[bytes] = [b"", b" ", b"{", b"not json", b'{"model": "m",}', b"\x00", b"[" * 3, b'{"a": "\n']
EVERY_PATH = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
              "/v1/rerank", "/v1/score", "/tokenize", "/detokenize")  # fmt: skip


@pytest.mark.parametrize("path", EVERY_PATH)
async def test_what_cannot_be_read_goes_by_load_and_spoils_nothing(stage: Stage, path: str) -> None:
    workers = [await stage.worker() for _ in range(2)]
    running = await stage.gateway(*workers)
    client = await stage.client(running)
    for body in NOTHING:
        answer = await client.ask(post(body, path))
        assert answer.status == 200, body
    assert sorted(body for worker in workers for body in worker.bodies) == sorted(NOTHING)
    for body in NO_JSON:
        answer = await client.ask(post(body, path))
        assert answer.status == 400, body
        said = answer.json()["error"]
        assert said["type"] == "invalid_request_error"
        assert path == "/v1/messages" or said["code"] == "invalid_json"
    assert (await client.ask(post(path=path))).status == 200
    assert not [event for event in running.finished if event.status >= 500]


async def test_requests_with_nothing_to_hash_are_spread_by_load(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(3)]
    running = await stage.gateway(*workers)
    client = await stage.client(running)
    for _ in range(30):
        assert (await client.ask(post(b'{"model": "m", "tokens": [1, 2]}', "/detokenize"))).one(
            "x-router-reason"
        ) == "load"
    assert min(len(worker.requests) for worker in workers) > 0


# Marks that are no part of a prompt.


async def test_a_mark_that_moves_on_with_each_turn_is_no_part_of_the_prompt(stage: Stage) -> None:
    """Clients of Anthropic's API set `cache_control` on the last block, which is another one in every turn."""
    running, client = await hashing(stage, 3)
    mark = {"cache_control": {"type": "ephemeral"}}
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": topic(1) * 3},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS[0][:4000]}},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"where": topic(2) * 3}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": topic(3) * 3, **mark}]},
        {"type": "thinking", "thinking": topic(4), "signature": "s"},
        {"type": "text", "text": topic(5) * 3},
    ]
    system = [{"type": "text", "text": SYSTEM}]

    def asked(marked: int | None, last: str) -> bytes:
        turns = [user([{**block, **(mark if at == marked else {})}]) for at, block in enumerate(blocks)]
        said = {"model": "m", "system": system, "messages": [*turns, user(last)], "max_tokens": 5}
        return post(json.dumps(said).encode(), "/v1/messages")

    for last in ("Hi", topic(6) * 5):
        keys = await keys_of(running, client, [asked(at, last) for at in (None, *range(len(blocks)))])
        assert len(set(keys)) == 1
