"""With `routing.resume` a stream whose worker dies goes on at another one, and the client sees one stream."""

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai
import pytest

from router.events import AttemptFailed, Resumed
from tests.support.client import CHAT, STREAM, Response, post
from tests.support.gateway import Running, Stage, ask, eventually
from tests.support.processes import gateway, mock_workers
from tests.support.worker import DONE, Answer, Seen, Worker, reply, stream
from tests.support.worker import event as chat_event

PLAIN = "/v1/completions"
WORDS = ["Once ", "upon ", "a ", "tïme 🙂 ", "there ", "was."]
ON: dict[str, Any] = {"policy": "tests.support.in_order", "resume": True}
VLLM = {"labels": {"engine": "vllm"}}
PATHS = pytest.mark.parametrize("path", [PLAIN, CHAT], ids=["completions", "chat"])


def body(path: str = PLAIN, **fields: Any) -> bytes:
    asked: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": len(WORDS), **fields}
    asked |= {"prompt": "Tell: "} if path == PLAIN else {"messages": [{"role": "user", "content": "Tell"}]}
    return json.dumps(asked | fields).encode()


def chunk(path: str, text: str | None, reason: str | None = None, who: str = "w", **fields: Any) -> bytes:
    """One event, as vLLM writes it; with None as text the chat's first one."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
    if path == PLAIN:
        choice["text"] = text
    else:
        choice["delta"] = {"role": "assistant", "content": ""} if text is None else {"content": text}
    value = {"id": f"id-{who}", "created": ord(who[-1]), "model": "m", "choices": [choice], **fields}
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def tale(path: str, words: Sequence[str], who: str = "w", usage: int | None = None) -> list[bytes]:
    """A whole stream of these words; with the usage of a prompt of so many tokens."""
    events = [chunk(path, word, who=who) for word in words]
    if path == CHAT:
        events.insert(0, chunk(path, None, who=who))
    events.append(chunk(path, "", "stop", who=who))
    if usage is not None:
        counts = {"prompt_tokens": usage, "completion_tokens": len(words), "total_tokens": usage + len(words)}
        events.append(chunk(path, "", who=who, choices=[], usage=counts))
    return [*events, DONE]


def said_before(seen: Seen) -> str:
    """What a request gives as the beginning of its answer."""
    asked = seen.json()
    if "prompt" in asked:
        return str(asked["prompt"]).removeprefix("Tell: ")
    last = asked["messages"][-1]
    if last["role"] != "assistant":
        return ""
    assert (asked["continue_final_message"], asked["add_generation_prompt"]) == (True, False)
    return str(last["content"])


def goes_on(path: str, who: str, usage: bool = False, **switches: Any) -> Callable[[Seen], Answer]:
    """A worker that says the rest of the words."""

    def answer(seen: Seen) -> Answer:
        before = said_before(seen)
        count = next(at for at in range(len(WORDS) + 1) if "".join(WORDS[:at]) == before)
        return stream(*tale(path, WORDS[count:], who, 5 + count if usage else None), **switches)

    return answer


async def fleet(stage: Stage, *answers: Any, on: dict[str, Any] = ON, **settings: Any) -> tuple[Running, list[Worker]]:
    """Workers that are asked in this order, all of them vLLM."""
    workers = [await stage.worker(answer=answer) for answer in answers]
    named = [{"url": worker.url, "id": f"w{at}", **VLLM} for at, worker in enumerate(workers)]
    return await stage.gateway(*named, routing=on, **settings), workers


def chunks(got: Response) -> list[dict[str, Any]]:
    """The events' values, but for the last one, which must be [DONE]."""
    data = [line[6:] for line in got.body.decode().splitlines() if line.startswith("data: ")]
    assert data.count("[DONE]") == 1
    assert data[-1] == "[DONE]"
    return [json.loads(each) for each in data[:-1]]


def text_of(values: list[dict[str, Any]]) -> str:
    choices = [choice for value in values for choice in value["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


def is_one_stream(got: Response) -> None:
    """The whole text once, in the first worker's name, begun once and ended once."""
    values = chunks(got)
    assert (got.status, got.whole) == (200, True)
    assert text_of(values) == "".join(WORDS)
    choices = [choice for value in values for choice in value["choices"]]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert sum("role" in choice.get("delta", ()) for choice in choices) == ("delta" in choices[0])
    assert len({(value["id"], value["created"], value["model"]) for value in values}) == 1


def told(running: Running) -> list[str]:
    return [event.result for event in running.told(Resumed)]


@PATHS
@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_stream_goes_on_wherever_it_breaks(stage: Stage, path: str, ending: str) -> None:
    events = tale(path, WORDS)
    last = len(events) - 2 if path == CHAT else len(WORDS)  # the finish reason comes next
    running, workers = await fleet(stage, reply(), goes_on(path, "x"), health={"unhealthy_after": 100})
    for count in range(last):
        workers[0].answer = stream(*events, stop=count, ending=ending)
        got = await ask(running.port, post(body(path, max_tokens=99), path))
        is_one_stream(got)
        assert got.one("x-router-resumable") == "true"
        assert (got.one("x-router-worker"), got.one("x-router-reason")) == ("w0", "load")
        assert [len(worker.requests) for worker in workers] == [count + 1] * 2
        finished = running.finished[-1]
        assert (finished.resumed, finished.tries, finished.worker, finished.reason) == (1, 2, "w1", "retry")
        assert not finished.cut
        seen = workers[1].requests[-1].json()
        spoken = count - (path == CHAT and count > 0)
        assert seen["max_tokens"] == 99 - spoken
        assert workers[1].requests[-1].one("x-request-id") == (got.one("x-request-id") or "").encode()
    assert told(running) == ["went_on"] * last
    assert {(event.worker, event.kind, event.retried) for event in running.told(AttemptFailed)} == {
        ("w0", "broken", True)
    }
    metrics = await running.metrics()
    assert metrics['prefix_router_resumed_total{result="went_on"}'] == last
    assert metrics['prefix_router_retries_total{kind="broken"}'] == last
    assert metrics['prefix_router_decisions_total{policy="tests.support.in_order",reason="retry"}'] == last


@PATHS
async def test_half_an_event_is_not_passed_on(stage: Stage, path: str) -> None:
    event = chunk(path, WORDS[3])
    middle = event.index("🙂".encode()) + 2  # in the middle of a character
    running, workers = await fleet(stage, reply(), goes_on(path, "x"), health={"unhealthy_after": 100})
    for at in (3, middle, len(event) - 1):
        workers[0].answer = stream(*tale(path, WORDS[:3])[:-2], event[:at], stop=99)
        is_one_stream(await ask(running.port, post(body(path), path)))


@PATHS
async def test_pieces_of_any_size_are_put_together(stage: Stage, path: str) -> None:
    whole = b"".join(tale(path, WORDS[:4])[:-2])
    running, workers = await fleet(stage, reply(), reply(), health={"unhealthy_after": 100})
    for size in (1, 7):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        rest = b"".join(tale(path, WORDS[4:], "x"))
        workers[0].answer = stream(*pieces, stop=len(pieces))
        workers[1].answer = stream(*[rest[at : at + size] for at in range(0, len(rest), size)])
        is_one_stream(await ask(running.port, post(body(path), path)))


@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
async def test_other_line_ends(stage: Stage, end: bytes) -> None:
    events = [each.replace(b"\n", end) for each in tale(CHAT, WORDS)]
    running, workers = await fleet(stage, stream(*events, stop=3), goes_on(CHAT, "x"))
    got = await ask(running.port, post(body(CHAT), CHAT))
    assert text_of(chunks(got)) == "".join(WORDS)
    assert said_before(workers[1].requests[0]) == "".join(WORDS[:2])


@PATHS
async def test_a_worker_that_falls_silent_is_as_good_as_dead(stage: Stage, path: str) -> None:
    first = stream(*tale(path, WORDS), stop=3, ending="hang")
    running, workers = await fleet(stage, first, goes_on(path, "x"), timeouts={"idle_seconds": 0.3})
    is_one_stream(await ask(running.port, post(body(path), path)))
    await eventually(lambda: (workers[0].aborted, workers[1].finished) == (1, 1))


@PATHS
async def test_the_worker_that_goes_on_may_die_too(stage: Stage, path: str) -> None:
    first, events = stream(*tale(path, WORDS), stop=2), tale(path, WORDS[2 if path == PLAIN else 1 :], "x")
    running, workers = await fleet(stage, first, stream(*events, stop=3), goes_on(path, "y"))
    got = await ask(running.port, post(body(path), path))
    is_one_stream(got)
    assert [worker.started for worker in workers] == [1, 1, 1]
    assert (running.finished[0].resumed, running.finished[0].tries) == (2, 3)
    assert got.body.count(b": resumed at w") == 2


async def test_a_continuation_that_is_not_had_is_sought_at_the_next(stage: Stage) -> None:
    """Refused, busy, at fault: each is passed over, and the worker that says no is not blamed for the stream."""
    first = stream(*tale(PLAIN, WORDS), stop=2)
    busy, fault = reply(b"{}", 503), reply(b"{}", 500)
    routing = {**ON, "max_tries": 9}
    running, workers = await fleet(
        stage, first, reply(), busy, fault, goes_on(PLAIN, "x"), on=routing, health={"interval_seconds": 60}
    )
    await workers[1].refuse()
    is_one_stream(await ask(running.port, post(body(), PLAIN)))
    kinds = [(event.worker, event.kind, event.retried) for event in running.told(AttemptFailed)]
    assert kinds == [("w0", "broken", True), ("w1", "refused", True), ("w2", "status_503", True),
                     ("w3", "status_500", True)]  # fmt: skip
    assert running.finished[0].resumed == 1


async def is_cut(running: Running, request: bytes, *passed: bytes) -> Response:
    """What came is passed on as it came, and the end is a cut."""
    got = await ask(running.port, request)
    assert (got.status, got.whole) == (200, False)
    assert got.body == b"".join(passed)
    await eventually(lambda: running.finished)
    assert (running.finished[-1].cut, running.finished[-1].resumed) == (True, 0)
    return got


NOBODY: dict[str, tuple[Any, dict[str, Any]]] = {
    "busy": (reply(b"{}", 503), {}),
    "says the request is bad": (reply(b"{}", 400), {}),
    "answers at once": (reply(), {}),
    "says something else": (stream(b"x", status=206), {}),
    "dies": (reply(stop=-1), {}),
    "tried often enough": (reply(), {"max_tries": 1}),
}


@pytest.mark.parametrize("name", NOBODY)
async def test_without_a_worker_that_goes_on_the_stream_is_cut(stage: Stage, name: str) -> None:
    second, routing = NOBODY[name]
    events = tale(PLAIN, WORDS)
    running, workers = await fleet(stage, stream(*events, stop=2), second, on={**ON, **routing})
    await is_cut(running, post(body(), PLAIN), *events[:2])
    assert len(workers[1].requests) == (0 if routing else 1)
    assert told(running) == ["cut"]
    assert running.told(AttemptFailed)[-1].retried is False


async def test_the_limit_on_the_first_byte_holds_for_the_rest_too(stage: Stage) -> None:
    events = tale(PLAIN, WORDS)
    hangs = reply(stop=-1, ending="hang")
    running, workers = await fleet(stage, stream(*events, stop=2), hangs, timeouts={"first_byte_seconds": 0.3})
    await is_cut(running, post(body(), PLAIN), *events[:2])
    await eventually(lambda: workers[1].aborted == 1)


async def test_one_worker_alone_promises_nothing(stage: Stage) -> None:
    events = tale(PLAIN, WORDS)
    running, _ = await fleet(stage, stream(*events, stop=2))
    got = await is_cut(running, post(body(), PLAIN), *events[:2])
    assert got.one("x-router-resumable") is None


async def test_unless_it_is_switched_on_nothing_changes(stage: Stage) -> None:
    events = [*tale(PLAIN, WORDS)[:2], b"data: half"]
    running, workers = await fleet(stage, stream(*events, stop=3), goes_on(PLAIN, "x"), on={**ON, "resume": False})
    got = await is_cut(running, post(body(), PLAIN), *events)
    assert got.one("x-router-resumable") is None
    assert not workers[1].requests


TOOL = {"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{"}}]}}
THOUGHT = {"index": 0, "delta": {"reasoning_content": "Hmm"}}
AT_AN_END = {
    "a tool call": chunk(CHAT, "", choices=[TOOL]),
    "a function call": chunk(CHAT, "", choices=[{"index": 0, "delta": {"function_call": {"name": "f"}}}]),
    "a thought": chunk(CHAT, "", choices=[THOUGHT]),
    "another choice": chunk(CHAT, "", choices=[{"index": 1, "delta": {"content": "x"}}]),
    "two choices": chunk(CHAT, "", choices=[{"index": 0, "delta": {}}, {"index": 0, "delta": {}}]),
    "its end": chunk(CHAT, "", "stop"),
    "what is no JSON": b"data: {oops\n\n",
    "an error": b'data: {"error": {"message": "out of memory"}}\n\n',
    "bytes that were no character": chunk(CHAT, "\ufffd"),
    "text of another kind": chunk(CHAT, "", choices=[{"index": 0, "delta": {"content": [1]}}]),
    "a byte order mark": b"\xef\xbb\xbf" + chunk(CHAT, "x"),
    "very much": chunk(CHAT, "x" * 1_100_000),
    "an event without an end": b"data: " + b"x" * 70_000,
}


@pytest.mark.parametrize("name", AT_AN_END)
async def test_a_stream_that_no_text_tells_is_cut_as_ever(stage: Stage, name: str) -> None:
    events = [chunk(CHAT, None), chunk(CHAT, "Hel"), AT_AN_END[name], b'data: {"half']
    running, workers = await fleet(stage, stream(*events, stop=4), goes_on(CHAT, "x"))
    await is_cut(running, post(body(CHAT), CHAT), *events)
    assert not workers[1].requests
    assert told(running) == []


UNFIT = {
    "several choices": {"n": 2}, "likelihoods": {"logprobs": True}, "an echo": {"echo": True},
    "a shape": {"response_format": {"type": "json_object"}}, "a choice": {"guided_choice": ["a"]},
    "a grammar": {"grammar": "root ::= a"}, "a tool that must be called": {"tool_choice": "required"},
    "sound": {"modalities": ["text", "audio"]}, "no prompt of one text": {"prompt": ["a"]},
    "ids": {"prompt": [1, 2]}, "a suffix": {"suffix": "x"}, "the best of some": {"best_of": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
async def test_a_request_for_more_than_a_text_is_never_gone_on_with(stage: Stage, name: str) -> None:
    events = tale(PLAIN, WORDS)
    running, workers = await fleet(stage, stream(*events, stop=2), goes_on(PLAIN, "x"))
    got = await is_cut(running, post(body(**UNFIT[name]), PLAIN), *events[:2])
    assert got.one("x-router-resumable") is None
    assert not workers[1].requests


async def test_a_chat_goes_on_only_at_an_engine_that_is_known_to(stage: Stage) -> None:
    """Others would take what was said for a turn that is over, and begin anew."""
    events = tale(CHAT, WORDS)
    workers = [await stage.worker(answer=stream(*events, stop=3)), await stage.worker(answer=goes_on(CHAT, "x"))]
    other = await stage.worker(answer=goes_on(CHAT, "y"))
    named = [{"url": worker.url, "id": f"w{at}"} for at, worker in enumerate([*workers, other])]
    running = await stage.gateway(*named, routing=ON)
    got = await is_cut(running, post(body(CHAT), CHAT), *events[:3])
    assert got.one("x-router-resumable") is None
    running.seats["w2"].engine = "sglang"  # as its model list would say
    is_one_stream(await ask(running.port, post(body(CHAT), CHAT)))
    assert [len(worker.requests) for worker in (*workers, other)] == [2, 0, 1]


@pytest.mark.parametrize("reports", [True, False], ids=["told on the way", "estimated"])
async def test_usage_is_that_of_the_whole(stage: Stage, reports: bool) -> None:
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}} if reports else {}
    first = [chunk(PLAIN, WORDS[0]), chunk(PLAIN, WORDS[1], **usage)]
    running, workers = await fleet(stage, stream(*first, stop=2), goes_on(PLAIN, "x", usage=True))
    got = await ask(running.port, post(body(stream_options={"include_usage": True}), PLAIN))
    is_one_stream(got)
    assert chunks(got)[-1]["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert (running.finished[0].prompt_tokens, running.finished[0].output_tokens) == (5, 6)
    assert workers[1].requests[0].json()["max_tokens"] == 4


async def test_the_client_may_leave_while_another_worker_is_asked(stage: Stage) -> None:
    running, workers = await fleet(stage, stream(*tale(PLAIN, WORDS), stop=2), reply(stop=-1, ending="hang"))
    client = await stage.client(running)
    await client.send(post(body(), PLAIN))
    await client.head()
    await eventually(lambda: workers[1].requests)
    assert [seat.load.in_flight for seat in running.seats.values()] == [0, 1]
    client.drop()
    await eventually(lambda: workers[1].aborted == 1)
    await eventually(lambda: running.finished)
    assert (running.finished[0].status, running.finished[0].cancelled_in) == (499, "streaming")


async def test_the_client_may_leave_once_it_goes_on(stage: Stage) -> None:
    gate = asyncio.Event()
    second = stream(chunk(PLAIN, WORDS[2]), gate, DONE)
    running, workers = await fleet(stage, stream(*tale(PLAIN, WORDS), stop=2), second)
    client = await stage.client(running)
    await client.send(post(body(), PLAIN))
    got = await client.head()
    while WORDS[2].encode() not in got.body:
        await client.piece(got)
    client.drop()
    await eventually(lambda: workers[1].aborted == 1)
    await eventually(lambda: running.finished)
    assert (running.finished[0].status, running.finished[0].resumed) == (499, 1)


@PATHS
async def test_the_official_client_reads_the_whole_text_once(stage: Stage, path: str) -> None:
    running, _ = await fleet(stage, stream(*tale(path, WORDS), stop=3), goes_on(path, "x", usage=True))
    http = httpx.AsyncClient(trust_env=False, timeout=10)
    url = f"http://127.0.0.1:{running.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="k", http_client=http, max_retries=0) as client:
        if path == CHAT:
            turns: Any = [{"role": "user", "content": "Tell"}]
            chat = await client.chat.completions.create(model="m", messages=turns, stream=True)
            texts = [each.choices[0].delta.content or "" async for each in chat if each.choices]
        else:
            plain = await client.completions.create(model="m", prompt="Tell: ", stream=True)
            texts = [each.choices[0].text async for each in plain if each.choices]
    assert "".join(texts) == "".join(WORDS)


async def test_what_is_no_event_stream_is_left_alone(stage: Stage) -> None:
    running, _ = await fleet(stage, Answer(pieces=(b'{"a":', b" 1"), length=99, stop=2), goes_on(PLAIN, "x"))
    got = await is_cut(running, post(body(), PLAIN), b'{"a": 1')
    assert got.one("x-router-resumable") is None


async def test_a_stream_that_ends_well_is_passed_on_byte_for_byte(stage: Stage) -> None:
    pieces = [b": hello\n\n", chat_event("1"), b"id: 7\nda", b"ta: [DONE]\n\n", b"and more"]
    running, _ = await fleet(stage, stream(*pieces), goes_on(CHAT, "x"))
    got = await ask(running.port, post(STREAM))
    assert (got.body, got.whole) == (b"".join(pieces), True)


@PATHS
def test_a_mock_worker_that_is_killed_is_not_missed(path: str) -> None:
    """Real processes: the text is that of a stream that nothing disturbed."""
    asked = {"model": "mock-model", "stream": True, "max_tokens": 60}
    asked |= {"prompt": "Tell me"} if path == PLAIN else {"messages": [{"role": "user", "content": "Tell me"}]}
    with mock_workers(2, "--decode-tokens-per-second", "30") as workers:
        named = [{"url": worker.url, "id": f"w{at}"} for at, worker in enumerate(workers)]
        routing = {"policy": "tests.support.in_order", "resume": True}
        alone = httpx.post(workers[1].url + path, json=asked, timeout=30).content
        with gateway([], workers=named, routing=routing) as program:
            data = b""
            with httpx.stream("POST", program.url + path, json=asked, timeout=30) as answer:
                for piece in answer.iter_raw():
                    data += piece
                    if data.count(b"data: ") > 9 and workers[0].process.poll() is None:
                        workers[0].stop(signal.SIGKILL)
                assert (answer.headers["x-router-worker"], answer.headers["x-router-resumable"]) == ("w0", "true")
    assert b": resumed at w1\n\n" in data

    def text(of: bytes) -> str:
        return text_of(chunks(Response(200, "1.1", [], [of])))

    assert text(data) == text(alone) != ""
    assert data.count(b'"finish_reason":"length"') == 1
