"""What a check says of a prompt or a result: the built-in word list, and what an answer of the operator's own check means. Pure."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_MAX_REASON_CHARS = 200
_NOT_LETTERS = ("P", "Z", "S", "C", "M")  # punctuation, spaces, symbols, control characters, marks


@dataclass(frozen=True, slots=True)
class ContentRefusal:
    """`reason` is for the person who asked."""

    reason: str


def folded(text: str) -> str:
    """Without what hides a word: case, width, spaces, punctuation, invisible characters."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in plain if not unicodedata.category(c).startswith(_NOT_LETTERS))


def has_word(text: str, words: Iterable[str]) -> bool:
    """Words in Latin letters count where they stand alone, all others wherever they stand."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    apart = set("".join(c if c.isalnum() else " " for c in plain).split())
    close = folded(text)
    return any(_is_in(word, apart, close) for word in words)


def _is_in(word: str, apart: set[str], close: str) -> bool:
    plain = folded(word)
    return plain in apart if plain.isascii() and len(word.split()) == 1 else plain != "" and plain in close


def refusal_in(answer: object) -> ContentRefusal | None:
    """What the operator's check has answered. Raises ValueError for what is no verdict."""
    match answer:
        case {"verdict": "pass"}:
            return None
        case {"verdict": "refuse", "reason": str(reason)} if reason.strip():
            return ContentRefusal(" ".join(reason.split())[:_MAX_REASON_CHARS])
        case {"verdict": "refuse"}:
            return ContentRefusal("It was refused by the check of this service.")
        case _:
            raise ValueError("the answer has no verdict")
