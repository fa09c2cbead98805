"""Join codes in Redis: only their digests, and for each that was used, which machine did."""

import hmac
from enum import Enum

from turnout.fleet.join_code_rules import MAX_JOIN_CODE_S
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text
from turnout.tenants.key_rules import secret_digest


class CodeUse(Enum):
    FIRST = "first"
    AGAIN = "again"


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

    async def take(self, code: str, probe_key: str) -> CodeUse | None:
        """How the machine that made `probe_key` up uses the code; None if another does."""
        name, own = self._names.join_code_used(secret_digest(code)), secret_digest(probe_key)
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.set(name, own, nx=True, ex=MAX_JOIN_CODE_S)
            pipe.get(name)
            first, used_by = await pipe.execute()
        if first:
            return CodeUse.FIRST
        return CodeUse.AGAIN if used_by and hmac.compare_digest(text(used_by), own) else None
