"""Runs the parts of a service on one machine as child processes: in order, restarted when they die or hang, stopped
in reverse order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.backoff import backoff_s
from turnout.errors import Misconfigured, Unavailable
from turnout.processes.child import Child
from turnout.processes.life_signs import LifeSigns
from turnout.telemetry.log import get_log

log = get_log()

DISMISSED = 20  # the exit code of a part that was told, by somebody else, that the service is to end
_STEADY_S = 30.0  # a part that ran this long is restarted without delay
_MISCONFIGURED = 2  # the exit code of a part that says what is wrong with its settings
_TRIES = 3  # of a part that dies of something else, until the service is up
_LOOK_S = 1.0
_HUNG_LOOKS = 20  # in a row without a sign of life; looks are counted, so a time in which nobody could look is none of a part's


@dataclass(frozen=True, slots=True)
class Part:
    """`start` returns once the part can be relied on by those that start after it. A part with `signs` that gave one and then
    none any more hangs: it is killed and started again."""

    name: str
    start: Callable[[], Awaitable[Child]]
    grace_s: float
    signs: LifeSigns | None = None


@dataclass(slots=True)
class _Service:
    """`up` once `ready` has returned; before that, a part that cannot start ends it with a reason."""

    stopping: asyncio.Event
    up: bool = False
    problem: str | None = None


async def run_parts(
    parts: Sequence[Part], stopping: asyncio.Event, ready: Callable[[], Awaitable[None]]
) -> None:
    """Keeps all parts running until `stopping`, which a part that was dismissed sets, too. `ready` is called once all have been
    started, and returns when the service is up. Raises Misconfigured when a part cannot start until then."""
    stops = [asyncio.Event() for _ in parts]
    watchers: list[asyncio.Task[None]] = []
    service = _Service(stopping)
    async with asyncio.TaskGroup() as group:
        try:
            for part, stop in zip(parts, stops, strict=True):
                process = await _start(part)
                watchers.append(group.create_task(_keep(part, process, stop, service), name=part.name))
            await _until_up(ready, service)
            await stopping.wait()
        finally:
            for watcher, stop in reversed(list(zip(watchers, stops, strict=False))):
                stop.set()
                await watcher
    if service.problem is not None:
        raise Misconfigured(service.problem)


async def _until_up(ready: Callable[[], Awaitable[None]], service: _Service) -> None:
    """Or until it is to end before."""
    announced = asyncio.ensure_future(ready())
    stopped = asyncio.create_task(service.stopping.wait(), name="stopped")
    try:
        await asyncio.wait({announced, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if announced.done():
            announced.result()
            service.up = True
    finally:
        announced.cancel()
        stopped.cancel()


async def _keep(part: Part, process: Child, stop: asyncio.Event, service: _Service) -> None:
    """The only owner of a part's process: restarts it until told to stop."""
    stopped = asyncio.create_task(stop.wait(), name=f"{part.name} stop")
    failures = 0
    while True:
        began = time.monotonic()
        ended = asyncio.create_task(process.wait(), name=f"{part.name} wait")
        await _until_hung(part.signs, {ended, stopped})
        if not ended.done() and not stopped.done():
            log.error("process of the service hangs", part=part.name, pid=process.pid)
            process.kill()
            await ended
        if stopped.done():
            await process.stop(part.grace_s)
            return
        process.kill()  # what is left of its group
        if ended.result() == DISMISSED:
            log.warning("service stopped from elsewhere", part=part.name)
            service.stopping.set()
            return
        said = process.last_words()
        log.warning("process of the service died", part=part.name, code=ended.result(), said=said)
        failures = 0 if time.monotonic() - began > _STEADY_S else failures + 1
        if not service.up and (ended.result() == _MISCONFIGURED or failures == _TRIES):
            service.problem = f"the {part.name} does not start: {said.removeprefix('error: ')}"
            service.stopping.set()
            return
        while True:
            await asyncio.wait({stopped}, timeout=backoff_s(failures + 1, 0.1, 10.0))
            if stopped.done():
                return
            try:
                process = await _start(part)
                break
            except (Unavailable, OSError) as err:  # OSError: no space for its log, no memory for a process
                failures += 1
                log.error("process of the service could not be restarted", part=part.name, error=str(err))
        log.info("process of the service restarted", part=part.name, pid=process.pid)


async def _start(part: Part) -> Child:
    if part.signs is not None:
        part.signs.forget()
    return await part.start()


async def _until_hung(signs: LifeSigns | None, others: set[asyncio.Task[Any]]) -> None:
    """Returns when one of the others has ended, or no sign of life was seen for long after the first."""
    missed: int | None = None
    while missed is None or missed < _HUNG_LOOKS:
        done, _ = await asyncio.wait(
            others, timeout=_LOOK_S if signs else None, return_when=asyncio.FIRST_COMPLETED
        )
        if done:
            return
        if signs is not None and signs.seen():
            missed = 0
        elif missed is not None:
            missed += 1
