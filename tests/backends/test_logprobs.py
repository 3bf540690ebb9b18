"""Log probabilities in OpenAI's two forms."""

from backends.choices import Scored
from backends.contract import TokenLogprob
from backends.logprobs import chat_logprobs, text_logprobs


class Halves:
    """A tokenizer whose tokens 1 and 2 are the two bytes of one character."""

    def token_bytes(self, token: int) -> bytes:
        return {1: b"\xc3", 2: b"\xa9", 3: b"a", 4: b"b"}[token]


SCORED = [
    Scored(0, TokenLogprob(3, -0.5, ((4, -0.25), (3, -0.5)))),
    Scored(1, TokenLogprob(1, float("-inf"), ((4, -0.1), (2, -3.0)))),
    Scored(1, TokenLogprob(2, 0.0, ())),
]


def test_a_chat_shows_one_object_a_token_with_its_bytes() -> None:
    shown = chat_logprobs(SCORED, Halves())["content"]  # type: ignore[arg-type]
    assert shown[0] == {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [
            {"token": "b", "logprob": -0.25, "bytes": [98]},
            {"token": "a", "logprob": -0.5, "bytes": [97]},
        ],
    }
    assert bytes(byte for one in shown for byte in one["bytes"]).decode() == "aé"
    assert shown[1]["token"] == "\ufffd"


def test_completions_show_four_lists_and_the_chosen_token_is_among_the_likeliest() -> None:
    shown = text_logprobs(SCORED, Halves())  # type: ignore[arg-type]
    assert shown["tokens"] == ["a", "\ufffd", "\ufffd"]
    assert shown["text_offset"] == [0, 1, 1]
    assert shown["top_logprobs"][0] == {"b": -0.25, "a": -0.5}
    assert shown["top_logprobs"][2] == {"\ufffd": 0.0}


def test_minus_infinity_is_a_number_that_json_can_say() -> None:
    assert chat_logprobs(SCORED, Halves())["content"][1]["logprob"] == -9999.0  # type: ignore[arg-type]
    assert text_logprobs(SCORED, Halves())["token_logprobs"] == [-0.5, -9999.0, 0.0]  # type: ignore[arg-type]
