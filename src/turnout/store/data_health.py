"""Whether Redis takes writes, and whether its data is still what this process began with."""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.errors import Unavailable
from turnout.store import scripts
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """How the server of the data is: how long an answer took, what it holds, and what it may hold (its own limit, or the
    machine's memory; 0 if it does not tell)."""

    ping_s: float
    memory_bytes: int
    memory_limit_bytes: int
    clients: int


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


class DataHealth:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._known = ""  # the data's id, as this process first saw it

    async def prove_write(self) -> None:
        """Writes as a submission does. Raises Unavailable that says, without addresses, why that fails; with the code
        `data_lost` when the data is not what this process began with."""
        fresh = "" if self._known else secrets.token_hex(16)
        try:
            found = await scripts.prove_write(self._link, fresh=fresh)
        except Unavailable as err:
            said = (reason for words, reason in _REFUSALS if re.search(words, err.message))
            raise Unavailable(next(said, "it did not answer"), retry_after_s=1.0) from err
        self._compare(found)

    async def check_data(self) -> None:
        """Raises Unavailable with the code `data_lost` as above; otherwise nothing, also when nobody answers."""
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
        """How the manager's background loops are, as it told a moment ago."""
        async with translated():
            found = await self._link.client.hgetall(self._link.keys.manager_loops())
        return {text(name): text(state) for name, state in found.items()}
