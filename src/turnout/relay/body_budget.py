"""How much memory the bodies of requests may take, in all and by account."""

SMALL_BODY_BYTES = 64 * 1024
"""Such a body is always taken, and counts for no account."""


class BodyBudget:
    """An account, a tenant's, has at most half of it, so that others are always heard. The empty name is nobody's."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._of: dict[str, int] = {}
        self.bytes = 0

    def fits(self, account: str, size: int) -> bool:
        if self.bytes + size > self._max_bytes:
            return False
        return not account or self._of.get(account, 0) + size <= self._max_bytes // 2

    def add(self, account: str, size: int) -> None:
        self.bytes += size
        if account:
            self._of[account] = self._of.get(account, 0) + size

    def remove(self, account: str, size: int) -> None:
        self.bytes -= size
        if account:
            left = self._of.get(account, 0) - size
            if left > 0:
                self._of[account] = left
            else:
                self._of.pop(account, None)
