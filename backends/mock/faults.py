"""What may go wrong, as rules: which requests, how often, and what happens to them.

A rule is a JSON object. Where it applies:

    path, paths     these paths only; "*" is every path but /faults. Without: the generating paths
    times           the next N matching requests, then no more
    share           this fraction of the matching requests, drawn with the seeded dice

What it does, each of these at will, seconds unscaled:

    refuse          true: nobody can connect any more; a number: for so many seconds
    not_ready       true: /health and /ping answer 503
    close_idle      closes connections that were quiet for so many seconds
    delay           waits so many seconds before it does anything with a request
    status          answers with this status; with `body` (text, or JSON), `headers`, `content_type`, `retry_after`
    hang, cut, reset   stops answering, closes, or resets the connection at a point of the answer:
                    "before" (or true) before the status line, "head" after the headers, a number after so many events
                    (2.5: in the middle of the third), "done" where the final event of the stream should be
    gap             so many seconds before each event
    length          declares a length that is off by so many bytes; closes at the end
    gzip            true: compresses the answer, whatever the client accepts
    echo            true: answers with the request: {method, path, target, headers, body_base64}
    garbage         true or a text: sends that instead of HTTP, and closes
    split           sends each event in pieces of so many bytes
    crlf, no_space  true: ends lines with CR LF; writes `data:` without a space
    noise           true: comments, `retry:`, id-only and empty events between the events

For one request, each effect comes from the first rule that has it. On the command line a rule is
`NAME=VALUE,NAME=VALUE` or the JSON object itself; a lone NAME means true. `POST /faults` takes one object or a list
and replaces all rules; an empty one, and `DELETE /faults`, end all faults.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

Point = bool | float | Literal["before", "head", "done"]

HEALTH_PATHS = ("/health", "/ping")
SCOPE = ("path", "paths", "times", "share")


class Effects(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    refuse: bool | float | None = None
    not_ready: bool | None = None
    close_idle: float | None = None
    delay: float | None = None
    status: int | None = None
    body: Any = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    retry_after: float | str | None = None
    hang: Point | None = None
    cut: Point | None = None
    reset: Point | None = None
    gap: float | None = None
    length: int | None = None
    gzip: bool | None = None
    echo: bool | None = None
    garbage: bool | str | None = None
    split: int | None = None
    crlf: bool | None = None
    no_space: bool | None = None
    noise: bool | None = None


class Rule(Effects, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    path: str | None = None
    paths: list[str] | None = None
    times: int | None = None
    share: float = 1.0

    def matches(self, path: str, *, generates: bool) -> bool:
        named = [*(self.paths or ()), *((self.path,) if self.path is not None else ())]
        if named:
            return path in named or "*" in named
        return path in HEALTH_PATHS if self.not_ready else generates


class RuleError(ValueError):
    """A rule that cannot be; the message says which name and what was expected."""


def rules_from(value: Any) -> list[Rule]:
    """One object or a list of them. All faults of all rules are in the error."""
    found: list[Rule] = []
    complaints: list[str] = []
    for place, one in enumerate(value if isinstance(value, list) else [value]):
        if one == {}:
            continue
        try:
            found.append(_rule(one))
        except RuleError as error:
            complaints.append(f"rule {place}: {error}" if isinstance(value, list) else str(error))
    if complaints:
        raise RuleError("; ".join(complaints))
    return found


def rule_from_text(text: str) -> Rule:
    """The command line's form: JSON, or names and values with commas between."""
    if text.lstrip().startswith("{"):
        try:
            return _rule(json.loads(text))
        except ValueError as error:
            raise RuleError(str(error)) from None
    pairs = (part.partition("=") for part in text.split(","))
    return _rule({name.strip(): _value(value) if equals else True for name, equals, value in pairs})


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rule(value: Any) -> Rule:
    try:
        rule = msgspec.convert(value, Rule)
    except msgspec.ValidationError as error:
        raise RuleError(str(error)) from None
    numbers = {"times": rule.times, "gap": rule.gap, "delay": rule.delay, "close_idle": rule.close_idle}
    wrong = [f"`{name}` must not be negative" for name, number in numbers.items() if number is not None and number < 0]
    if not 0 <= rule.share <= 1:
        wrong.append("`share` must be from 0 to 1")
    if rule.split is not None and rule.split < 1:
        wrong.append("`split` must be at least 1")
    if rule.status is not None and not 200 <= rule.status <= 599:
        wrong.append("`status` must be from 200 to 599")
    if not set(msgspec.to_builtins(rule)) - set(SCOPE):
        wrong.append("no effect is named")
    if wrong:
        raise RuleError(", ".join(wrong))
    return rule


class Faults:
    """The rules in force. Choosing counts down their `times` and rolls their dice, so it is done once a request."""

    def __init__(self, rules: Iterable[Rule], dice: random.Random) -> None:
        self._dice = dice
        self.replace(rules)

    def replace(self, rules: Iterable[Rule]) -> None:
        self._rules: list[Rule] = list(rules)
        self._left: list[int | None] = [rule.times for rule in self._rules]

    def shown(self) -> list[dict[str, Any]]:
        """The rules with what is left of their `times`."""
        shown: list[dict[str, Any]] = [msgspec.to_builtins(rule) for rule in self._rules]
        for rule, left in zip(shown, self._left, strict=True):
            if left is not None:
                rule["times"] = left
        return shown

    def choose(self, path: str, *, generates: bool) -> Effects | None:
        """What happens to this request; None when nothing does."""
        chosen: dict[str, Any] = {}
        for place, rule in enumerate(self._rules):
            left = self._left[place]
            if left == 0 or not rule.matches(path, generates=generates) or self._dice.random() >= rule.share:
                continue
            if left is not None:
                self._left[place] = left - 1
            chosen = {**_effects(rule), **chosen}
        return msgspec.convert(chosen, Effects) if chosen else None

    @property
    def refuse(self) -> bool | float | None:
        return next((rule.refuse for rule in self._rules if rule.refuse is not None), None)

    @property
    def close_idle(self) -> float | None:
        return next((rule.close_idle for rule in self._rules if rule.close_idle is not None), None)


def _effects(rule: Rule) -> Mapping[str, Any]:
    """What a rule does to one request; refusing and closing idle connections are no matter of requests."""
    values: Mapping[str, Any] = msgspec.to_builtins(rule)
    return {name: value for name, value in values.items() if name not in (*SCOPE, "refuse", "close_idle")}


def breaking(effects: Effects) -> tuple[Literal["hang", "cut", "reset"], Point] | None:
    """How and where the answer breaks off."""
    kinds: Sequence[Literal["hang", "cut", "reset"]] = ("hang", "cut", "reset")
    for kind in kinds:
        point: Point | None = getattr(effects, kind)
        if point is not None and point is not False:
            return kind, "before" if point is True else point
    return None
