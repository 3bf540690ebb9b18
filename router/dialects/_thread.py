"""The thread of a stream: what the client has been given, event by event, so that another worker can go on with it.

While that can be, only whole events are passed on; and once it is, the new worker's events are made to fit those that
the client has: one role, one id, one usage.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from router.dialects._continuation import CHAT, onward
from router.dialects._reading import event_data

MOST_TEXT = 1_048_576
MOST_EVENT = 65_536
EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
FIELD = re.compile(rb"(?:data:|id:|retry:|:|\r?$)")
UNKNOWN = "\ufffd"  # stands for bytes that were no character: what they were nobody knows


class Delta(msgspec.Struct, gc=False):
    role: Any = None
    content: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None
    refusal: Any = None


class StreamChoice(msgspec.Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: Any = None
    logprobs: Any = None


class Counted(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[StreamChoice]
    id: Any = None
    created: Any = None
    model: Any = None
    usage: Counted | None = None


_chunk = msgspec.json.Decoder(Chunk).decode


class Thread:
    """The thread of one stream: the request that began it, and what the client has been given.

    open: another worker could go on from here
    joined: another worker went on, and its events are made to fit
    spoken: tokens so far, one for each event with text unless usage is told on the way
    """

    __slots__ = ("_body", "_named", "_path", "_pending", "_prompt_tokens", "_role", "_size", "_texts", "_unread",
                 "before", "is_chat", "joined", "open", "spoken")  # fmt: skip

    def __init__(self, path: str, body: bytes) -> None:
        self._path = path
        self.is_chat = path == CHAT
        self._body = body
        self._texts: list[str] = []
        self._size = self.spoken = self.before = 0
        self._pending = b""
        self._named: dict[str, Any] = {}
        self._prompt_tokens: int | None = None
        self._role = self._unread = self.joined = False
        self.open = True

    @property
    def needs_engine(self) -> bool:
        """Only an engine that is known to go on with an assistant's message can: with a prompt's text any can."""
        return self.is_chat and bool(self._texts)

    def take(self, pieces: list[bytes]) -> list[bytes]:
        """What may be passed on: whole events while the stream can be gone on with, all there is from then on."""
        if self._unread or not (self.open or self.joined):
            return pieces
        data = self._pending + b"".join(pieces)
        out: list[bytes] = []
        at = 0
        for end in EVENT_END.finditer(data):
            event = data[at : end.end()]
            at = end.end()
            if self.joined:
                event = self._fitted(event)
            out.append(event)
            self._note(event)
        self._pending = data[at:]
        if len(self._pending) > MOST_EVENT:
            self._close()
            self._unread = True
        if self._unread or not (self.open or self.joined):
            out += self.rest()
        passed = b"".join(out)
        return [passed] if passed else []

    def rest(self) -> list[bytes]:
        """What was held back: the stream is over, or nobody will go on with it."""
        rest, self._pending = self._pending, b""
        return [rest] if rest else []

    def onward(self) -> bytes | None:
        """The request for the rest; None where there can be none. From now on what comes is another worker's."""
        if not self.open:
            return None
        text = "".join(self._texts)
        if not text:
            self.spoken = 0  # what was computed and not said is computed anew
        self._pending = b""
        self.joined = True
        self.before = self.spoken
        return onward(self._path, self._body, text, self.spoken)

    def _close(self) -> None:
        """Nobody can go on from here: what only that would need is let go."""
        self.open = False
        self._texts, self._body = [], b""

    def _note(self, event: bytes) -> None:
        """Read an event that the client is given."""
        if not self.open:
            return
        data = event_data(event)
        if not data and all(FIELD.match(line) for line in event.splitlines()):
            return  # a comment, an id, a reconnection time
        try:
            chunk = _chunk(data)
        except (msgspec.DecodeError, RecursionError):
            chunk = None
        if chunk is None or not self._is_plain(chunk):
            self._close()
            return
        if not self._named:
            self._named = {name: getattr(chunk, name) for name in ("id", "created", "model") if getattr(chunk, name)}
        for choice in chunk.choices:
            self._role = self._role or (choice.delta is not None and bool(choice.delta.role))
            self._say(choice.text if choice.delta is None else choice.delta.content)
        if chunk.usage is not None:
            self._prompt_tokens = chunk.usage.prompt_tokens
            self.spoken = max(self.spoken, chunk.usage.completion_tokens or 0)

    @staticmethod
    def _is_plain(chunk: Chunk) -> bool:
        """It goes on with the one plain text."""
        for choice in chunk.choices:
            delta = choice.delta or Delta()
            if choice.index or choice.finish_reason or choice.logprobs or delta.reasoning_content or delta.reasoning:
                return False
            if delta.tool_calls or delta.function_call or delta.audio or delta.refusal:
                return False
        return len(chunk.choices) < 2

    def _say(self, text: str | None) -> None:
        if not text:
            return
        self._texts.append(text)
        self._size += len(text)
        self.spoken += 1
        if self._size > MOST_TEXT or UNKNOWN in text:
            self._close()

    def _fitted(self, event: bytes) -> bytes:
        """Another worker's event as a part of this stream; empty where the client has had the same."""
        data = event_data(event)
        try:
            value = msgspec.json.decode(data)
            choices = value.get("choices")
            usage = value.get("usage")
        except (msgspec.DecodeError, RecursionError, AttributeError):
            return event
        value.update({name: said for name, said in self._named.items() if name in value})
        if isinstance(usage, dict):
            self._correct(usage)
        if self._role and isinstance(choices, list) and not all(map(_without_role, choices)) and not usage:
            return b""
        ending = EVENT_END.search(event)
        return b"data: " + msgspec.json.encode(value) + (ending.group() if ending else b"\n\n")

    def _correct(self, usage: dict[str, Any]) -> None:
        """The usage of the whole: what was said before counts as said, not as asked."""
        said, read = usage.get("completion_tokens"), usage.get("prompt_tokens")
        if type(said) is not int or type(read) is not int:
            return
        prompt = max(0, read - self.before) if self._prompt_tokens is None else self._prompt_tokens
        usage.update(prompt_tokens=prompt, completion_tokens=said + self.before)
        usage["total_tokens"] = prompt + said + self.before
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and type(details.get("cached_tokens")) is int:
            details["cached_tokens"] = min(details["cached_tokens"], prompt)


def _without_role(choice: Any) -> bool:
    """Take out the role, which the client has had. False where nothing else was said."""
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict) or delta.pop("role", None) is None:
        return True
    return any(delta.values()) or bool(choice.get("finish_reason"))
