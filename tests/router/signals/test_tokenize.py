"""Asking workers for a prompt's tokens in the background: seldom, bounded, and nothing waits for it."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from router.core.blocks import Blocks, chain, packed
from router.core.fingerprint import fingerprint
from router.core.fleet import Seat
from router.core.health import Thresholds
from router.core.rungs import Rungs
from router.proxy.worker_tls import WorkerContexts
from router.signals import tokenize as module
from router.signals.tokenize import MOST_ABSENT, MOST_BODY, MOST_WAITING, Question, Tokenizer, question
from router.types import Fingerprint, worker_from_url
from tests.support.gateway import eventually
from tests.support.worker import Answer, Worker, reply

TLS = WorkerContexts(ssl.create_default_context())
TEXT = b"a prompt of some length, " * 40
TOKENS = list(range(1, 251))
BODY = json.dumps({"model": "m", "prompt": TEXT.decode()}).encode()
GOOD = reply(json.dumps({"count": 250, "max_model_len": 4096, "tokens": TOKENS}).encode())


def print_of(text: bytes = TEXT) -> Fingerprint:
    return fingerprint(text, 7)


class Asking:
    """A tokenizer whose engines have blocks of 16 tokens."""

    def __init__(self) -> None:
        self.rungs = Rungs(Blocks())
        self.rungs.blocks.store("some", [1], None, packed([9] * 16), 16)
        self.tokenizer = Tokenizer(self.rungs, TLS)

    def offer(self, worker: Worker, text: bytes = TEXT, body: bytes = BODY, **fields: Any) -> None:
        self.tokenizer.offer(seat_of(worker.url, **fields), print_of(text), body)

    async def idle(self) -> None:
        await eventually(lambda: not self.tokenizer._waiting and not self.tokenizer._askers)


def seat_of(url: str, **fields: Any) -> Seat:
    return Seat(worker_from_url(url, **fields), Thresholds())


Make = Callable[..., Awaitable[Worker]]


@pytest.fixture
async def worker() -> AsyncIterator[Make]:
    made: list[Worker] = []

    async def make(answer: Answer | Callable[..., Answer] = GOOD, **switches: Any) -> Worker:
        made.append(await Worker(answer=answer, **switches).listen())
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
async def asking(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asking]:
    monkeypatch.setattr(module, "REST", 0.001)
    asking = Asking()
    yield asking
    await asking.tokenizer.close()


async def test_a_prompts_blocks_are_learnt(worker: Make, asking: Asking) -> None:
    one = await worker()
    asking.offer(one)
    await eventually(lambda: asking.tokenizer.learnt)
    (seen,) = one.requests
    assert (seen.method, seen.target) == ("POST", b"/tokenize")
    assert json.loads(seen.body) == json.loads(BODY)
    names = chain(packed(TOKENS), 16, 0)
    assert asking.rungs._young[print_of().hashes[-1]][0] in names
    assert not asking.rungs.wanted(print_of())


async def test_what_is_known_is_not_asked_for_again(worker: Make, asking: Asking) -> None:
    one = await worker()
    for _ in range(5):
        asking.offer(one)
    await asking.idle()
    assert (len(one.requests), asking.tokenizer.asked) == (len(one.requests), len(one.requests))
    assert len(one.requests) <= module.AT_ONCE, "those that were asked at once did not know of each other"
    asking.offer(one)
    await asking.idle()
    assert len(one.requests) <= module.AT_ONCE


async def test_at_most_four_at_once_and_what_there_is_no_room_for_is_dropped(worker: Make, asking: Asking) -> None:
    gate = asyncio.Event()
    one = await worker(Answer(pieces=(gate, b'{"tokens": [1]}'), framing="eof"))
    for at in range(100):
        asking.offer(one, b"%d" % at + TEXT)
    await eventually(lambda: one.running == 4)
    await asyncio.sleep(0.05)
    assert one.most_at_once == 4
    assert len(asking.tokenizer._waiting) <= MOST_WAITING
    assert asking.tokenizer.dropped >= 100 - MOST_WAITING - 4
    gate.set()


async def test_asks_are_paced(worker: Make, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REST", 60.0)
    one = await worker()
    for at in range(20):
        asking.offer(one, b"%d" % at + TEXT)
    await eventually(lambda: len(one.requests) == 4)
    await asyncio.sleep(0.1)
    assert len(one.requests) == 4


async def test_a_longer_body_is_not_read_a_second_time(worker: Make, asking: Asking) -> None:
    one = await worker()
    asking.offer(one, body=b" " * (MOST_BODY + 1))
    assert (asking.tokenizer.dropped, one.requests) == (1, [])


async def test_the_workers_own_credentials_go_with_it(worker: Make, asking: Asking) -> None:
    one = await worker(key="its-key")
    asking.offer(one, api_key="its-key")
    await eventually(lambda: asking.tokenizer.learnt == 1)
    other = await worker()
    asking.tokenizer.offer(seat_of(f"http://me:s%40cret@{other.id}/base"), print_of(b"other" + TEXT), BODY)
    await eventually(lambda: asking.tokenizer.learnt == 2)
    assert other.requests[0].one("authorization") == b"Basic " + b64encode(b"me:s@cret")
    assert other.requests[0].target == b"/base/tokenize"


@pytest.mark.parametrize("status", [401, 404, 405, 501])
async def test_a_worker_without_this_path_is_soon_asked_no_more(
    worker: Make, asking: Asking, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    one = await worker(reply(b"", status))
    for at in range(MOST_ABSENT + 5):
        asking.offer(one, b"%d" % at + TEXT)
        await asking.idle()
    assert len(one.requests) == asking.tokenizer.failed == MOST_ABSENT
    assert asking.tokenizer.refused == 1
    assert f"/tokenize with {status}" in caplog.text
    asking.tokenizer.forget(one.id)
    asking.offer(one)
    await asking.idle()
    assert len(one.requests) == MOST_ABSENT + 1, "what comes back under its name may have it"


@pytest.mark.parametrize("answer", [reply(b"", 500), reply(b"", 429), reply(b"not json"), reply(b"{}"),
    reply(b"[1]"), reply(b'{"tokens": ["x"]}'), reply(b'{"tokens": null}'), reply(b"\xff"),
    Answer(pieces=(b"{",), stop=0)])  # fmt: skip
async def test_an_answer_that_is_none_is_counted_and_teaches_nothing(
    worker: Make, asking: Asking, answer: Answer
) -> None:
    one = await worker(answer)
    asking.offer(one)
    await asking.idle()
    assert (asking.tokenizer.failed, asking.tokenizer.learnt, asking.tokenizer.refused) == (1, 0, 0)
    assert asking.rungs.wanted(print_of())


async def test_ids_that_cannot_be_are_not_learnt(worker: Make, asking: Asking) -> None:
    asking.offer(await worker(reply(b'{"tokens": [-1, 5]}')))
    await asking.idle()
    assert (asking.tokenizer.asked, asking.tokenizer.learnt) == (1, 0)


async def test_a_worker_that_hangs_costs_its_time_limit(
    worker: Make, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    asking.offer(await worker(reply(b"", delay=60.0)))
    await eventually(lambda: asking.tokenizer.failed == 1)


async def test_a_worker_that_is_not_there_is_no_trouble(worker: Make, asking: Asking) -> None:
    one = await worker()
    await one.refuse()
    asking.offer(one)
    await eventually(lambda: asking.tokenizer.failed == 1)


async def test_ids_that_the_client_gave_need_no_asking(worker: Make, asking: Asking) -> None:
    one = await worker()
    asking.offer(one, body=json.dumps({"prompt": TOKENS}).encode())
    await asking.idle()
    assert (asking.tokenizer.learnt, asking.tokenizer.asked, one.requests) == (1, 0, [])


async def test_a_prompt_that_cannot_be_asked_for_is_passed_over_once(worker: Make, asking: Asking) -> None:
    one = await worker()
    for _ in range(3):
        asking.offer(one, body=b'{"prompt": "x", "cache_salt": "s"}')
        await asking.idle()
    assert (asking.tokenizer.passed, asking.tokenizer.asked) == (1, 0)


async def test_closing_leaves_no_task(worker: Make, asking: Asking) -> None:
    before = asyncio.all_tasks()
    one = await worker(reply(b"", delay=60.0))
    for at in range(10):
        asking.offer(one, b"%d" % at + TEXT)
    await eventually(lambda: one.running)
    await asking.tokenizer.close()
    assert not {task for task in asyncio.all_tasks() - before if task.get_name() == "tokenize"}
    asking.offer(one)
    assert not asking.tokenizer._askers


CHAT = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({"model": "m", "prompt": "x", "max_tokens": 5, "stream": True}, {"model": "m", "prompt": "x"}),
        ({"model": "m", "messages": CHAT, "temperature": 0}, {"model": "m", "messages": CHAT}),
        ({"messages": CHAT, "tools": [{"type": "function"}], "chat_template_kwargs": {"enable_thinking": False},
          "add_generation_prompt": False, "n": 1}, {"messages": CHAT, "tools": [{"type": "function"}],
          "chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": False}),
        ({"messages": CHAT, "prompt": "x"}, {"messages": CHAT}),
    ],
)  # fmt: skip
def test_only_what_decides_the_tokens_is_asked_with(body: dict[str, Any], asked: dict[str, Any]) -> None:
    found = question(json.dumps(body).encode())
    assert found is not None
    assert (found.model, found.tokens) == (body.get("model"), None)
    assert json.loads(found.body) == asked


def test_ids_are_taken_from_the_request() -> None:
    assert question(b'{"prompt": [1, 2, 3], "model": "m"}') == Question("m", b"", [1, 2, 3])


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff\xfe", b'{"prompt"', b"{}", b'{"input": "x"}',
    b'{"prompt": null}', b'{"prompt": ["a", "b"]}', b'{"prompt": [[1], [2]]}', b'{"prompt": 5}', b'{"prompt": "\\ud8"}',
    b'{"model": 7, "prompt": "x"}', b'{"prompt": "x", "cache_salt": "s"}', b'{"messages": [], "system": "s"}',
    b'{"messages": [{"content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}',
    b'{"messages": [{"content": [{"type": "input_audio"}]}]}', b'{"messages": ' + b"[" * 100_000])  # fmt: skip
def test_where_there_is_nothing_to_ask_nothing_is(body: bytes) -> None:
    assert question(body) is None
