"""Reads a streamed chat answer: its words, and the comments in which the server says why none has come yet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from turnout.cli.server_answers import ServerError
from turnout.errors import TurnoutError, Unavailable


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """A part of the answer, or a notice of the server (`waking`, `waiting`); the other is empty."""

    text: str = ""
    notice: str = ""


class ChatDelta(BaseModel):
    content: str | None = None


class ChatChoice(BaseModel):
    delta: ChatDelta = ChatDelta()


class ChatChunk(ServerError):
    choices: tuple[ChatChoice, ...] = ()


def read_pieces(body: Iterable[bytes]) -> Iterator[ChatPiece]:
    """Ends at `[DONE]`; raises Unavailable when the stream ends without it."""
    for line in _lines(body):
        field, _, value = line.partition(":")
        value = value.strip()
        if line.startswith(":"):
            yield ChatPiece(notice=value)
        elif field == "data":
            if value == "[DONE]":
                return
            if text := _text(value):
                yield ChatPiece(text)
    raise Unavailable("the answer broke off before its end")


def _text(data: str) -> str | None:
    """The words in one chunk; data that is not one is skipped."""
    try:
        chunk = ChatChunk.model_validate_json(data)
    except ValidationError:
        return None
    if chunk.error:
        raise chunk.as_error(TurnoutError, "the server broke the answer off")
    return chunk.choices[0].delta.content if chunk.choices else None


def _lines(body: Iterable[bytes]) -> Iterator[str]:
    """Lines with their comments: httpx-sse drops those. httpx's own lines also end at U+2028 and the like, which may
    stand unescaped in an answer's JSON."""
    rest = b""
    for piece in body:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
