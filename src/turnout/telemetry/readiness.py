"""Whether requests can be served: proven by the writes that they make, and said of each part.

An answer is kept for a moment, and asked for once at a time, so that nobody can load Redis by asking.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from turnout.background import BackgroundLoops
from turnout.errors import TurnoutError, Unavailable
from turnout.store.data_health import DataHealth
from turnout.store.mutex import Mutex
from turnout.store.object_store import Blobs
from turnout.telemetry.log import get_log

_DEADLINE_S = 3.0
_KEEP_S = 1.0
_KEEP_BLOBS_S = 10.0  # each write of an object may cost money
_CANARY = "ready/canary"
_RIGHTS = {
    "manager": "no manager is at work: leases, expiry and webhooks wait",
    "fleet": "no manager looks after the models: none is started or stopped",
}

log = get_log()


class ReadinessCheck:
    """`parts` says of each part either "ok" or what is wrong."""

    def __init__(
        self,
        data: DataHealth,
        blobs: Blobs,
        mutex: Mutex,
        background: BackgroundLoops,
        routes_known: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._data = data
        self._blobs = blobs
        self._mutex = mutex
        self._background = background
        self._routes_known = routes_known
        self._now = now
        self._asking = asyncio.Lock()
        self._kept: tuple[float, Mapping[str, str]] | None = None
        self._kept_blobs: tuple[float, str] | None = None

    async def parts(self) -> dict[str, str]:
        async with self._asking:
            if self._kept is None or self._now() - self._kept[0] >= _KEEP_S:
                self._kept = (self._now(), await self._ask())
        # Loops are looked at each time: this costs nothing.
        return {**self._kept[1], "routes": self._routes(), **self._loops()}

    async def _ask(self) -> dict[str, str]:
        redis, blobs, manager = await asyncio.gather(
            _state("redis", self._data.prove_write()), self._blobs_take(), _state("manager", self._managed())
        )
        return {"redis": redis, "blobs": blobs, "manager": manager}

    async def _blobs_take(self) -> str:
        kept = self._kept_blobs
        if kept is None or kept[1] != "ok" or self._now() - kept[0] >= _KEEP_BLOBS_S:
            state = await _state(
                "blobs", self._blobs.put(_CANARY, b"ok", "text/plain"), "it takes no objects"
            )
            kept = self._kept_blobs = (self._now(), state)
        return kept[1]

    async def _managed(self) -> None:
        for right, without in _RIGHTS.items():
            if await self._mutex.holder(right) is None:
                raise Unavailable(without)
        failing = [name for name, state in (await self._data.manager_loops()).items() if state != "ok"]
        if failing:
            raise Unavailable(f"background loops fail: {', '.join(failing)}")

    def _routes(self) -> str:
        return "ok" if self._routes_known() else "not heard of yet: chat waits for the manager"

    def _loops(self) -> dict[str, str]:
        """A loop of one worker is named only while it fails."""
        if not self._background.alive:
            return {"loops": "nobody keeps them running"}
        states = self._background.states()
        failing = {f"loop {name}": state for name, state in states.items() if state != "ok"}
        return failing or {"loops": "ok"}


async def _state(part: str, asked: Awaitable[object], unclear: str = "") -> str:
    """`unclear` is said in place of an error's text that may name addresses."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await asked
        return "ok"
    except TimeoutError:
        return f"did not answer within {_DEADLINE_S:g} s"
    except TurnoutError as err:
        # Anyone may ask: what exactly failed, and where it lies, is for the log.
        log.warning("part not ready", part=part, reason=err.message)
        if err.message.startswith("Redis did not answer"):
            return "Redis did not answer"
        return unclear or err.message
