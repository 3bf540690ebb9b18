"""Events written in odd but legal ways: pure functions from an event's bytes to the bytes that are sent for it."""

from collections.abc import Callable, Iterator

from backends.mock.faults import Effects

Distortion = Callable[[bytes], bytes]

NOISE = b": still here\n\nretry: 5000\n\nid: 7\n\ndata:\n\n"
"""What real servers send between events: a comment, a reconnection time, an id alone, an event without data."""


def distortion(effects: Effects) -> Distortion | None:
    """All of an effect's oddities as one function; None when there is none."""
    steps = [step for wanted, step in _STEPS if getattr(effects, wanted)]
    if not steps:
        return None

    def distort(event: bytes) -> bytes:
        for step in steps:
            event = step(event)
        return event

    return distort


def add_noise(event: bytes) -> bytes:
    return NOISE + event


def drop_space(event: bytes) -> bytes:
    return (
        event.replace(b"data: ", b"data:", 1) if event.startswith(b"data: ") else event.replace(b"\ndata: ", b"\ndata:")
    )


def use_crlf(event: bytes) -> bytes:
    return event.replace(b"\n", b"\r\n")


_STEPS: tuple[tuple[str, Distortion], ...] = (("no_space", drop_space), ("noise", add_noise), ("crlf", use_crlf))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def is_last(event: bytes) -> bool:
    """The event that tells a client the stream is complete: OpenAI's `[DONE]`, Anthropic's `message_stop`."""
    return event.startswith((b"data: [DONE]", b"event: message_stop"))
