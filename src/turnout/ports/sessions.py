"""Sessions of people who use the page, and the codes that open them."""

from typing import Protocol

from turnout.domain.keys import Key


class SessionStore(Protocol):
    """A session is found in the `KeyStore` by its id, like a key, for as long as the key that opened it is there."""

    async def put_code(self, digest: str, key_id: str, ttl_s: int) -> None: ...

    async def take_code(self, digest: str) -> str | None:
        """The id of the key that it stands for; a code works once, whoever asks."""
        ...

    async def open(self, session: Key, parent: str, ttl_s: int) -> None: ...
    async def end(self, session_id: str) -> None: ...
