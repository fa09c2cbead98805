"""Whether Redis takes writes, and whether its data is still what this process began with."""

import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from turnout.adapters.redis import scripts
from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.records import text
from turnout.domain.errors import Unavailable
from turnout.ports.service_health import ServerLoad

_LOOPS_MS = 10_000
_GONE = (
    "The data is gone: Redis was emptied or replaced since this gateway started. Restore a copy (turnout restore FILE), "
    "or restart the service to begin anew, with new keys."
)
# What the server says (redis-py drops some of the first words), and what anyone may know of it.
_REFUSALS = (
    (r"\bOOM\b|maxmemory", "it refuses writes: it is out of memory (maxmemory)"),
    (r"\bMISCONF\b", "it refuses writes: it cannot write to its disk"),
    (r"\bREADONLY\b|read only replica", "it refuses writes: it is a read-only replica"),
    (r"\bNOREPLICAS\b", "it refuses writes: it has too few replicas"),
    (r"\bLOADING\b|loading", "it is loading its data"),
    (r"\bNOPERM\b|no permissions|\bNOAUTH\b|[Aa]uthentication|WRONGPASS", "it refuses this user or password"),
)


class RedisDataHealth:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._known = ""  # the data's id, as this process first saw it

    async def prove_write(self) -> None:
        fresh = "" if self._known else secrets.token_hex(16)
        try:
            found = await scripts.prove_write(self._link, fresh=fresh)
        except Unavailable as err:
            said = (reason for words, reason in _REFUSALS if re.search(words, err.message))
            raise Unavailable(next(said, "it did not answer"), retry_after_s=1.0) from err
        self._compare(found)

    async def check_data(self) -> None:
        try:
            if not self._known:
                return await self.prove_write()
            async with translated():
                found = await self._link.client.get(self._link.keys.genesis())
        except Unavailable as err:
            if err.code == "data_lost":
                raise
            return
        self._compare(text(found) if found else "")

    def _compare(self, found: str) -> None:
        self._known = self._known or found
        if found != self._known:
            raise Unavailable(_GONE, code="data_lost")

    async def load(self) -> ServerLoad:
        async with translated():
            began = time.perf_counter()
            await self._link.client.ping()
            ping_s = time.perf_counter() - began
            info: dict[str, Any] = await self._link.client.info()
        limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
        return ServerLoad(
            ping_s, int(info.get("used_memory", 0)), limit, int(info.get("connected_clients", 0))
        )

    async def report_loops(self, states: Mapping[str, str]) -> None:
        name = self._link.keys.manager_loops()
        async with translated(), self._link.client.pipeline(transaction=True) as pipe:
            pipe.delete(name)
            pipe.hset(name, mapping=dict(states))
            pipe.pexpire(name, _LOOPS_MS)
            await pipe.execute()

    async def manager_loops(self) -> dict[str, str]:
        async with translated():
            found = await self._link.client.hgetall(self._link.keys.manager_loops())
        return {text(name): text(state) for name, state in found.items()}
