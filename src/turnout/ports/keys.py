"""API keys, and logins that stand for one."""

from collections.abc import Collection, Mapping
from typing import Protocol

from turnout.domain.keys import Key


class KeyStore(Protocol):
    async def add(self, *keys: Key) -> None:
        """Stores them together; one with a known id takes its place."""
        ...

    async def find(self, key_id: str) -> Key | None: ...
    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, Key | None]: ...
    async def all(self) -> list[Key]: ...
    async def revoke(self, key_id: str) -> bool: ...


class LoginVerifier(Protocol):
    """Tokens (JWTs) of the issuer in the configuration."""

    async def verify(self, token: str) -> Key:
        """The token as a key. Raises Unauthorized; Forbidden where it names no tenant or role of ours; Unavailable while
        the issuer's keys are not known."""
        ...
