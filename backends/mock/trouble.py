"""Where faults meet requests and the server: an app around the face that lets every request through, or does not.

It also answers `/faults`, on which no rule applies.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from backends.face import Call, Face, Route
from backends.http import Answer, Headers, Request
from backends.mock.faults import Effects, Faults, RuleError, breaking, rules_from
from backends.mock.faulty import FaultyAnswer, Later
from backends.server import Server
from backends.wire import ApiError, encode, send_json

GARBAGE = "\x16\x03\x01 this is not HTTP\r\n\r\n"
CONTROL_PATH = "/faults"


class Trouble:
    """The app of a mock worker's server."""

    def __init__(self, face: Face, faults: Faults, later: Later) -> None:
        self._face = face
        self._faults = faults
        self._later = later

    def __call__(self, request: Request, answer: Answer) -> None:
        route = self._face.route(request)
        effects = None
        if request.path != CONTROL_PATH:
            effects = self._faults.choose(request.path, generates=route is not None and route.generates)
        if effects is None:
            self._face(request, answer)
            return
        faulty = FaultyAnswer(answer, effects, self._later)
        let_go = self._face.ledger.hold(faulty) if route is not None and route.generates and held(effects) else None
        self._after(effects.delay, faulty, lambda: self._go(request, faulty, effects, let_go))

    def _after(self, delay: float | None, answer: Answer, action: Callable[[], None]) -> None:
        """Now, or later if there is still somebody to answer then."""
        if not delay:
            action()
            return
        waiting = True

        def stop(_: bool) -> None:
            nonlocal waiting
            waiting = False

        answer.when_over(stop)
        self._later(delay, lambda: action() if waiting else None)

    def _go(self, request: Request, answer: Answer, effects: Effects, let_go: Callable[[], None] | None) -> None:
        """What happens once the delay is over."""
        broken = breaking(effects)
        if broken is not None and broken[1] == "before":
            if broken[0] != "hang":
                (answer.cut if broken[0] == "cut" else answer.reset)()
            return
        if let_go is not None:
            let_go()
        if effects.garbage:
            answer.raw((GARBAGE if effects.garbage is True else effects.garbage).encode("latin-1", "replace"))
            answer.cut()
        elif effects.status is not None or effects.not_ready:
            answer.whole(*said(effects))
        elif effects.echo:
            send_json(answer, echo_of(request))
        else:
            self._face(request, answer)


def held(effects: Effects) -> bool:
    """Whether this fault stands in for an engine that has begun: it delays or breaks, and does not just say no."""
    return effects.status is None and bool(effects.delay or breaking(effects) is not None)


def said(effects: Effects) -> tuple[int, Headers, bytes]:
    """The answer that a rule dictates; without a body, an error in OpenAI's form."""
    status = effects.status or 503
    if isinstance(effects.body, str):
        body, kind = effects.body.encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
    else:
        error = ApiError(status, "This worker was told to answer so.", "InjectedFault").openai()
        body, kind = encode(error if effects.body is None else effects.body), "application/json"
    headers = [("content-type", effects.content_type or kind), *(effects.headers or {}).items()]
    if effects.retry_after is not None:
        headers.append(
            (
                "retry-after",
                f"{effects.retry_after:g}" if not isinstance(effects.retry_after, str) else effects.retry_after,
            )
        )
    return status, headers, body


def echo_of(request: Request) -> dict[str, Any]:
    """The request as it arrived, so that a gateway's fidelity can be seen."""
    return {
        "method": request.method,
        "path": request.path,
        "target": request.target,
        "headers": request.headers,
        "body_base64": b64encode(request.body).decode(),
    }


class Control:
    """Changes the rules at run time, and makes the server refuse and close as they say."""

    def __init__(self, faults: Faults, later: Later) -> None:
        self._faults = faults
        self._later = later
        self._tasks: set[asyncio.Task[None]] = set()
        self._change = 0
        self.server: Server | None = None

    @property
    def routes(self) -> tuple[Route, ...]:
        return (
            Route("GET", CONTROL_PATH, self._show),
            Route("POST", CONTROL_PATH, self._replace),
            Route("DELETE", CONTROL_PATH, self._clear),
        )

    def apply(self, done: Callable[[], None] = lambda: None) -> None:
        """Makes the server what the rules say, then calls `done`."""
        server = self.server
        assert server is not None
        self._change += 1
        server.close_quiet(self._faults.close_idle)
        refuse = self._faults.refuse
        if not refuse:
            task = asyncio.get_running_loop().create_task(server.listen())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: done())
            return
        server.refuse()
        if refuse is not True:
            self._later(refuse, lambda change=self._change: self._listen_again(change))  # type: ignore[misc]
        done()

    def _listen_again(self, change: int) -> None:
        """The end of a limited refusal, unless the rules have changed since."""
        if change == self._change and self.server is not None:
            task = asyncio.get_running_loop().create_task(self.server.listen())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _show(self, call: Call) -> None:
        send_json(call.answer, {"rules": self._faults.shown()})

    def _replace(self, call: Call) -> None:
        try:
            self._faults.replace(rules_from(call.body()))
        except RuleError as error:
            raise ApiError(400, str(error)) from None
        self.apply(lambda: self._show(call))

    def _clear(self, call: Call) -> None:
        self._faults.replace(())
        self.apply(lambda: self._show(call))
