"""Join codes in Redis: only their digests, and for each that was used, which machine did."""

import hmac

from turnout.fleet.join_code_rules import MAX_JOIN_CODE_S
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text
from turnout.tenants.key_rules import secret_digest


class JoinCodeStore:
    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._names = link.keys

    async def put(self, code: str, made_by: str, ttl_s: int) -> None:
        async with translated():
            await self._client.set(self._names.join_code(secret_digest(code)), made_by, ex=ttl_s)

    async def maker(self, code: str) -> str | None:
        """The id of the key that made it; None for a code that has expired, or never was."""
        async with translated():
            found = await self._client.get(self._names.join_code(secret_digest(code)))
        return text(found) if found else None

    async def take(self, code: str, probe_key: str) -> bool:
        """Whether the machine that made `probe_key` up is the one that uses the code; the first to ask is."""
        name, own = self._names.join_code_used(secret_digest(code)), secret_digest(probe_key)
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.set(name, own, nx=True, ex=MAX_JOIN_CODE_S)
            pipe.get(name)
            _, used_by = await pipe.execute()
        return used_by is not None and hmac.compare_digest(text(used_by), own)
