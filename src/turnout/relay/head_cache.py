"""Remembers the last head that a peer sent, to know it again without parsing it.

A peer sends the same head again and again; only the length of the body differs. A head that has the same bytes, but
for the digits of its Content-Length, means the same: the parser need not be asked. Anything else is the parser's.
"""

import re
from typing import Generic, TypeVar

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_MAX_DIGITS = 10
_PATIENCE = 16  # heads in vain before another is learnt: some peers send a new one each time

T = TypeVar("T")


class HeadCache(Generic[T]):
    """`meaning` is what the parser made of the head."""

    __slots__ = ("_before", "_misses", "_rest", "_start", "meaning")

    def __init__(self) -> None:
        self.meaning: T | None = None
        self._before = self._rest = b""
        self._start = self._misses = 0

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is one whole message with the known head and nothing more."""
        start = self._start
        if not start or not data.startswith(self._before):
            return None
        end = data.find(self._rest, start, start + _MAX_DIGITS + len(self._rest))
        digits = data[start:end]
        if end < 0 or not digits.isdigit():
            return None
        at = end + len(self._rest)
        return data[at:] if len(data) - at == int(digits) else None

    def learn(self, data: bytes, meaning: T) -> None:
        """`data` begins with a head that the parser has accepted."""
        self._misses += 1
        if self._misses % _PATIENCE != 1:
            return
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end - 2) if end >= 4 else None
        if length is not None:
            self._before, self._rest = data[: length.start(1)], data[length.end(1) : end]
            self._start = len(self._before)
            self.meaning = meaning
