"""Text to token ids and back, and a conversation as the model was taught to read it."""

from collections.abc import Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from backends.contract import Chat
from backends.medusa.weights import Checkpoint, ModelFileError

CONTROL, USER_DEFINED = 3, 4  # GGUF's token types that are matched as a whole; the first are never shown
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # SmolLM2's own, when none is given
END_OF_TURN = "<|im_end|>"


def byte_letters() -> dict[str, bytes]:
    """The letter that stands for each byte in a byte-level vocabulary: GPT-2's table. What prints stands for itself,
    for the others stand the letters from 256 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): bytes([byte]) for byte in printed} | {
        chr(256 + place): bytes([byte]) for place, byte in enumerate(others)
    }


BYTES = byte_letters()


class Vocabulary:
    """Byte-level BPE (Sennrich et al. 2016, on bytes as in GPT-2) and the ChatML frame: the worker's Tokenizer."""

    def __init__(self, core: tokenizers.Tokenizer) -> None:
        self.core = core
        self._literal = tokenizers.Tokenizer.from_str(core.to_str())
        self._literal.encode_special_tokens = True
        end = core.token_to_id(END_OF_TURN)
        if end is None:
            raise ModelFileError(f"the vocabulary has no {END_OF_TURN}: this is not a chat model of the ChatML kind")
        self.end = end
        self.size = core.get_vocab_size()
        self.control = frozenset(place for place, token in core.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str, *, literal: bool = False) -> list[int]:
        """A lone surrogate, which JSON can carry and UTF-8 cannot, is read as U+FFFD. `literal`: a control token's name
        in the text is text, and no control token."""
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        core = self._literal if literal else self.core
        ids: list[int] = core.encode(whole, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.core.decode([token for token in ids if token < self.size], skip_special_tokens=True)

    def token_bytes(self, token: int) -> bytes:
        shown = self.core.id_to_token(token) or ""
        if token in self.control:
            return shown.encode()
        return b"".join(BYTES.get(character, character.encode()) for character in shown)

    def chat(self, chat: Chat, *, open_answer: bool = True, open_turn: bool = False) -> list[int]:
        """The frame is encoded part by part, so that a conversation's ids begin with those of its earlier turns.

        Tools come first, in the system turn, since every chat template prints them there. What a turn says cannot end
        it: control tokens come from the frame alone, where the model's own template would take them from the text too.
        """
        turns = [(turn.role, turn.text) for turn in chat.turns]
        if not turns or turns[0][0] != "system":
            turns.insert(0, ("system", SYSTEM))
        if chat.tools:
            turns[0] = ("system", "\n".join([*chat.tools, turns[0][1]]))
        ids: list[int] = []
        for index, (role, text) in enumerate(turns):
            ids += [*self.encode("<|im_start|>"), *self.encode(f"{role}\n", literal=True)]
            ids += self.encode(text, literal=True)
            if not (open_turn and index == len(turns) - 1):
                ids += self.encode(f"{END_OF_TURN}\n")
        if open_answer and not open_turn:
            ids += self.encode("<|im_start|>assistant\n")
        return ids


def vocabulary_of(checkpoint: Checkpoint) -> Vocabulary:
    """The model's own vocabulary. Raises ModelFileError if it has none that is known here."""
    if checkpoint.fields:
        return Vocabulary(from_gguf(checkpoint.fields))
    path = checkpoint.source / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(f"{checkpoint.source}: no tokenizer.json in it")
    return Vocabulary(tokenizers.Tokenizer.from_file(str(path)))


def from_gguf(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if (kind, split) != ("gpt2", "smollm"):
        raise ModelFileError(f"the GGUF's vocabulary is of the kind {kind!r}/{split!r}; known is 'gpt2'/'smollm'")
    tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    core = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in merges],
        )
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    kinds = list(zip(tokens, fields["tokenizer.ggml.token_type"], strict=True))
    core.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token, kind in kinds if kind == CONTROL]
    )
    core.add_tokens([AddedToken(token, normalized=False) for token, kind in kinds if kind == USER_DEFINED])
    return core
