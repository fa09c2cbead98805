"""Caches the last head that a peer sent, so that the same head need not be parsed again.

A peer sends the same head for each message; only the length of the body differs. A head with the same bytes, except the
digits of its Content-Length, means the same. Everything else goes to the parser.
"""

import re
from typing import Generic, TypeVar

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_MAX_DIGITS = 10
_MISSES = 16  # heads that did not match before another is cached: some peers send a new one each time

T = TypeVar("T")


class HeadCache(Generic[T]):
    """`parsed` is the cached head as the parser read it."""

    __slots__ = ("_after", "_before", "_misses", "_start", "parsed")

    def __init__(self) -> None:
        self.parsed: T | None = None
        self._before = self._after = b""
        self._start = self._misses = 0

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one message with the cached head."""
        start = self._start
        if not start or not data.startswith(self._before):
            return None
        end = data.find(self._after, start, start + _MAX_DIGITS + len(self._after))
        digits = data[start:end]
        if end < 0 or not digits.isdigit():
            return None
        at = end + len(self._after)
        return data[at:] if len(data) - at == int(digits) else None

    def remember(self, data: bytes, parsed: T) -> None:
        """`data` begins with a head that the parser has accepted."""
        self._misses += 1
        if self._misses % _MISSES != 1:
            return
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end - 2) if end >= 4 else None
        if length is not None:
            self._before, self._after = data[: length.start(1)], data[length.end(1) : end]
            self._start = len(self._before)
            self.parsed = parsed
