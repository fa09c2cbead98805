"""The processes that decode pictures: a few, started when needed, replaced when one dies. Tenants take turns."""

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

from turnout.errors import InvalidRequest, TooLarge, Unavailable
from turnout.tasks.image_fitting import ANSWER, DONE, JOB, FrameSize, too_costly, unreadable
from turnout.telemetry.log import get_log
from turnout.tenants.tenant_turns import TenantTurns, TurnLimits
from turnout.tenants.turn_rules import Turn

_TURNS = TurnLimits(
    places=2,
    of_one=2,
    waiting=64,
    wait_s=60.0,
    busy="Too many images wait to be decoded.",
    code="images_busy",
)
_JOB_S = 30.0  # by the clock; the CPU time has a shorter limit of its own
_MAX_PNG_BYTES = 64 * 2**20
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")  # of the environment, which may hold secrets


class ImagePool:
    """`max_pixels` bounds the memory of a process."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._turns = TenantTurns(_TURNS)
        self._idle: list[Process] = []

    async def fit(self, data: bytes, size: FrameSize, whose: Turn) -> bytes:
        """`data` turned upright, cropped around its centre, scaled, as a PNG. Raises InvalidRequest for what is no picture
        or costs too much, TooLarge for too many pixels, Limited or Unavailable when too many wait."""
        async with self._turns.turn(whose):
            return await self._run(data, size)

    async def aclose(self) -> None:
        for process in self._idle:
            await _end(process)
        self._idle.clear()

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
