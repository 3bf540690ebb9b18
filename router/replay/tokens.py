"""A stand-in for an engine's tokenizer: how real text falls into tokens, nearly, with no vocabulary at hand.

What byte-pair vocabularies of today have in common: a word takes its space along and common ones are whole, longer ones
fall into pieces; digits come in threes; punctuation takes its space along, up to three marks together or a long run of
one; a run of blanks is one token; a character outside ASCII is about one. So English has a little over four characters
a token, code and tables fewer: characters / 4 is an estimate that errs, as it does with a real one.
"""

from __future__ import annotations

import re

MARK = rb"[!-/:-@\[-`{-~]"
PIECES = re.compile(
    rb" ?[A-Za-z]{1,12}|[0-9]{1,3}|\n+|[ \t\r]+(?= )| ?(?:(%s)\1{2,15}|%s{1,3})|[ \t\r]+|[\xc0-\xff][\x80-\xbf]*|."
    % (MARK, MARK),
    re.DOTALL,
)


def token_ends(text: bytes) -> list[int]:
    """Bytes up to the end of each token, ascending; the last is the length. A prefix's tokens are, but for its last
    few characters, the prompt's own first ones."""
    return [piece.end() for piece in PIECES.finditer(text)]
