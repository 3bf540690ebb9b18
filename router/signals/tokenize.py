"""Asks workers which tokens they read in a prompt, in the background, after the prompt was sent.

Nothing waits for this. What there is no room or no need for is dropped: the table of who was sent what decides then.
An ask costs a worker as much as reading the request once more, and this process about a millisecond and four more for
each 256 KB, so there are at most four at once and fifty a second, of long ones fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import httpx
import msgspec

from router.core.fleet import Seat
from router.core.rungs import Rungs
from router.proxy.worker_tls import WorkerContexts
from router.types import Fingerprint

log = logging.getLogger("router")

AT_ONCE = 4
REST = 0.08  # seconds after each ask; longer after one of more than `LONG` bytes
LONG = 1 << 16
TIMEOUT = 2.0  # seconds
MOST_WAITING = 32
MOST_BODY = 1 << 20  # bytes; a longer request is not read a second time
ABSENT = frozenset((401, 403, 404, 405, 501))  # it has no such path, or not for us
MOST_ABSENT = 3  # such answers in a row, then it is asked no more
NOT_TEXT = (b'"image', b'"input_audio', b'"video', b'"file')

Given = msgspec.Raw | msgspec.UnsetType
UNSET = msgspec.UNSET


class _Request(msgspec.Struct, omit_defaults=True):
    """The fields of a request that decide its tokens, as the client wrote them."""

    model: Given = UNSET
    prompt: Given = UNSET
    messages: Given = UNSET
    tools: Given = UNSET
    add_generation_prompt: Given = UNSET
    continue_final_message: Given = UNSET
    add_special_tokens: Given = UNSET
    chat_template: Given = UNSET
    chat_template_kwargs: Given = UNSET


class _Others(msgspec.Struct):
    """Fields with which a prompt's blocks are no longer named by its tokens, or its tokens are not to be had."""

    cache_salt: Given = UNSET
    system: Given = UNSET
    documents: Given = UNSET


class _Tokens(msgspec.Struct):
    tokens: list[int]


_request = msgspec.json.Decoder(_Request).decode
_others = msgspec.json.Decoder(_Others).decode
_tokens = msgspec.json.Decoder(_Tokens).decode
_ids = msgspec.json.Decoder(list[int]).decode
_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
WRONG = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeError)


class Question(NamedTuple):
    """What to ask for a prompt's tokens; or the tokens, where the request itself gave them."""

    model: str | None
    body: bytes
    tokens: Sequence[int] | None = None


def question(body: bytes) -> Question | None:
    """None where there is nothing to ask: no prompt, several, or one that is not all text."""
    try:
        request, others = _request(body), _others(body)
        if others != _Others():
            return None
        model = None if isinstance(request.model, msgspec.UnsetType) else _text(request.model)
        if not isinstance(request.messages, msgspec.UnsetType):
            request.prompt = UNSET
            if any(mark in bytes(request.messages) for mark in NOT_TEXT):
                return None
            return Question(model, _encode(request))
        if isinstance(request.prompt, msgspec.UnsetType):
            return None
        if bytes(request.prompt)[:1] == b"[":
            return Question(model, b"", _ids(request.prompt))
        _text(request.prompt)
        return Question(model, _encode(request))
    except WRONG:
        return None


class Job(NamedTuple):
    seat: Seat
    prefix: Fingerprint
    body: bytes


class Tokenizer:
    """asked: questions sent; learnt: prompts; failed: no answer, or none that made sense; dropped: no room;
    passed: nothing to ask; refused: workers that have no such path"""

    def __init__(self, rungs: Rungs, tls: WorkerContexts) -> None:
        self._rungs = rungs
        self._tls = tls
        self._waiting: deque[Job] = deque()
        self._askers: set[asyncio.Task[None]] = set()
        self._clients: dict[ssl.SSLContext, httpx.AsyncClient] = {}
        self._absent: dict[str, int] = {}
        self._closed = False
        self.asked = self.learnt = self.failed = self.dropped = self.passed = self.refused = 0

    def offer(self, seat: Seat, prefix: Fingerprint, body: bytes) -> None:
        """This body was just sent there. Takes a few microseconds, whatever happens."""
        if self._closed or self._absent.get(seat.id, 0) >= MOST_ABSENT:
            return
        if len(self._waiting) >= MOST_WAITING or len(body) > MOST_BODY:
            self.dropped += 1
            return
        self._waiting.append(Job(seat, prefix, body))
        if len(self._askers) < AT_ONCE:
            task = asyncio.create_task(self._work(), name="tokenize")
            self._askers.add(task)
            task.add_done_callback(self._askers.discard)

    def forget(self, worker: str) -> None:
        """The worker left, or is another one now: its refusals are no more."""
        self._absent.pop(worker, None)

    async def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        for task in self._askers:
            task.cancel()
        await asyncio.gather(*self._askers, return_exceptions=True)
        for client in self._clients.values():
            with contextlib.suppress(Exception):
                await client.aclose()

    async def _work(self) -> None:
        """Ask until nothing waits."""
        while self._waiting and not self._closed:
            job = self._waiting.popleft()
            if not self._rungs.wanted(job.prefix):
                continue  # others with the same beginning went before
            asking = question(job.body)
            if asking is None:
                self.passed += 1
                self._rungs.pass_over(job.prefix)
                continue
            tokens = asking.tokens
            if tokens is None:
                tokens = await self._ask(job.seat, asking.body)
            if tokens is not None:
                self.learnt += self._rungs.learn(job.prefix, tokens, job.seat.id, asking.model)
            await asyncio.sleep(REST * max(1.0, len(job.body) / LONG))

    async def _ask(self, seat: Seat, body: bytes) -> Sequence[int] | None:
        self.asked += 1
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._connected(seat).post(
                    f"{seat.worker.address.url}/tokenize", content=body, headers=_headers(seat)
                )
            if answer.status_code in ABSENT:
                self._refuse(seat, answer.status_code)
            elif answer.status_code == 200:
                self._absent.pop(seat.id, None)
                return _tokens(answer.content).tokens
        except (httpx.HTTPError, TimeoutError, OSError, ValueError, *WRONG):
            pass
        self.failed += 1
        return None

    def _refuse(self, seat: Seat, status: int) -> None:
        count = self._absent[seat.id] = self._absent.get(seat.id, 0) + 1
        if count == MOST_ABSENT:
            self.refused += 1
            log.warning("worker %s answers /tokenize with %d: its KV events cannot be used", seat.id, status)

    def _connected(self, seat: Seat) -> httpx.AsyncClient:
        """One client a TLS setting: connections are never shared between two."""
        tls = self._tls.context(seat.worker)
        client = self._clients.get(tls)
        if client is None:
            limits = httpx.Limits(max_connections=2 * AT_ONCE, keepalive_expiry=5.0)
            client = httpx.AsyncClient(verify=tls, trust_env=False, timeout=TIMEOUT, limits=limits)
            self._clients[tls] = client
        return client


def _headers(seat: Seat) -> dict[str, str]:
    """With the worker's own credentials."""
    headers = {"content-type": "application/json"}
    key, credentials = seat.worker.api_key, seat.worker.address.credentials
    if key:
        headers["authorization"] = f"Bearer {key}"
    elif credentials:
        headers["authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    return headers
