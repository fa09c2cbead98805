"""The processes that decode pictures: a few, started when needed, replaced when one dies. Tenants take turns."""

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

from turnout.chat.seat_rules import SeatQueue, Waiter
from turnout.errors import InvalidRequest, Limited, TooLarge, Unavailable
from turnout.tasks.image_fitting import ANSWER, DONE, JOB, FrameSize, too_costly, unreadable
from turnout.tasks.task_rules import TenantId
from turnout.telemetry.log import get_log

_PROCESSES = 2
_MAX_WAITING = 64
_WAIT_S = 60.0
_JOB_S = 30.0  # by the clock; the CPU time has a shorter limit of its own
_MAX_PNG_BYTES = 64 * 2**20
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")  # of the environment, which may hold secrets


class ImagePool:
    """`max_pixels` bounds the memory of a process."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._free = _PROCESSES
        self._idle: list[Process] = []
        self._queue = SeatQueue()
        self._futures: dict[Waiter, asyncio.Future[None]] = {}  # of those in the queue

    async def fit(self, data: bytes, size: FrameSize, tenant: TenantId) -> bytes:
        """`data` turned upright, cropped around its centre, scaled, as a PNG. Raises InvalidRequest for what is no picture
        or costs too much, TooLarge for too many pixels, Limited or Unavailable when too many wait."""
        await self._enter(tenant)
        try:
            return await self._run(data, size)
        finally:
            self._free += 1
            self._seat()

    async def aclose(self) -> None:
        for process in self._idle:
            await _end(process)
        self._idle.clear()

    # --- Whose turn it is.
    async def _enter(self, tenant: TenantId) -> None:
        if len(self._queue) >= _MAX_WAITING:
            crowded_out = self._queue.crowded_out(tenant)
            if crowded_out is None:
                raise _too_many()
            self._queue.leave(crowded_out)
            self._futures.pop(crowded_out).set_exception(_too_many())
        waiter = Waiter(tenant, None, frozenset())
        future = self._futures[waiter] = asyncio.get_running_loop().create_future()
        self._queue.join(waiter)
        self._seat()
        try:
            async with asyncio.timeout(_WAIT_S):
                await future
        except BaseException as err:
            self._queue.leave(waiter)
            self._futures.pop(waiter, None)
            if future.done() and not future.cancelled() and future.exception() is None:
                self._free += 1  # it was given a process at the last moment
                self._seat()
            if isinstance(err, TimeoutError):
                raise Unavailable("Too many images wait to be decoded.", code="images_busy") from err
            raise

    def _seat(self) -> None:
        while self._free > 0 and (waiter := next(self._queue.in_turn(), None)) is not None:
            self._queue.serve(waiter)
            future = self._futures.pop(waiter)
            if not future.done():
                self._free -= 1
                future.set_result(None)

    # --- The work.
    async def _run(self, data: bytes, size: FrameSize) -> bytes:
        process = self._idle.pop() if self._idle else await self._start()
        try:
            async with asyncio.timeout(_JOB_S):
                kind, content = await _ask(process, data, size)
        except (OSError, EOFError, TimeoutError) as err:  # it was killed by its limits, or hangs
            await _end(process)
            get_log().warning("image process ended", returncode=process.returncode, bytes=len(data))
            raise too_costly() from err
        except BaseException:
            await _end(process)
            raise
        self._idle.append(process)
        if kind == DONE:
            return content
        raise _refusal(content)

    async def _start(self) -> Process:
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        command = (sys.executable, "-m", "turnout.tasks.image_fitting", str(self._max_pixels))
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environ, cwd="/"
            )
        except OSError as err:
            raise Unavailable(f"no process for images: {err}") from err


async def _ask(process: Process, data: bytes, size: FrameSize) -> tuple[int, bytes]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(JOB.pack(size.width, size.height, size.max_pixels, len(data)))
    process.stdin.write(data)
    await process.stdin.drain()
    kind, length = ANSWER.unpack(await process.stdout.readexactly(ANSWER.size))
    if length > _MAX_PNG_BYTES:
        raise EOFError("an answer that cannot be")
    return kind, await process.stdout.readexactly(length)


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _refusal(content: bytes) -> InvalidRequest:
    """What the process said is data: it has seen what strangers sent."""
    try:
        status, message, code = json.loads(content)
    except ValueError:
        return unreadable()
    return (TooLarge if status == TooLarge.status else InvalidRequest)(str(message), code=str(code))


def _too_many() -> Limited:
    return Limited("Too many images wait to be decoded.", code="images_busy", retry_after_s=5)
