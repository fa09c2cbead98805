"""How much work a JSON text may make. Pure.

A parser needs 0.1 s for a megabyte of empty lists, and 0.2 ms for a megabyte of one string: values count, not bytes. It
cannot be interrupted, and a thread would keep the interpreter as long, so what would take long is refused.
"""

from turnout.errors import TooLarge

SMALL_JSON_BYTES = 256 * 1024
"""A text of this size takes 7 ms at most."""
PIECE_BYTES = 256 * 1024
MAX_WORK_NS = 15_000_000
# What the parser was measured to need for each, at most.
_WORK_NS = ((b",", 50), (b":", 120), (b"[", 80), (b"{", 230), (b"\\", 16))
_UNICODE_NS = 1.3  # a byte of a text that is not all ASCII


class JsonWork:
    """What a text would cost to parse, added up piece by piece. What stands inside of strings counts, too."""

    def __init__(self) -> None:
        self._spent_ns = 0.0

    def add(self, piece: bytes) -> None:
        """Raises TooLarge when it is too much."""
        self._spent_ns += sum(piece.count(sign) * cost_ns for sign, cost_ns in _WORK_NS)
        if not piece.isascii():
            self._spent_ns += len(piece) * _UNICODE_NS
        if self._spent_ns > MAX_WORK_NS:
            raise TooLarge("The body has too many values.", code="body_too_complex")
