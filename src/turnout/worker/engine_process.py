"""The process of one engine, under a subreaper that kills everything the engine started."""

import asyncio
import contextlib
import sys
from typing import Protocol

from turnout.engines.servers.engine_servers import Launch
from turnout.fleet.replica_rules import EngineFigures
from turnout.processes.life_signs import LifeSigns
from turnout.processes.process import Command
from turnout.worker.exit_reason_rules import load_progress
from turnout.worker.orphans import MARK
from turnout.worker.subreaper import ask_to_kill

_PROGRESS_BYTES = 4096
_TAIL_BYTES = 64 * 1024  # vLLM prints the root cause far above its last line
_SUBREAPER_S = 5.0


class Engine(Protocol):
    """An engine's control paths. Each call raises Unavailable if the engine does not obey."""

    async def healthy(self, launch: Launch, timeout_s: float) -> bool: ...
    async def figures(self, launch: Launch, timeout_s: float) -> EngineFigures | None: ...
    async def sleep(self, launch: Launch, timeout_s: float) -> None: ...
    async def wake(self, launch: Launch, timeout_s: float) -> None: ...


def command_line(launch: Launch, replica: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment. The environment tells a later worker whose process it was."""
    argv = [sys.executable, "-m", "turnout.worker.subreaper", *launch.argv]
    return argv, {**launch.environ, MARK: replica}


class EngineProcess:
    def __init__(self, launch: Launch, process: Command, engine: Engine) -> None:
        self.launch = launch
        self.process = process
        self._engine = engine
        self._last_output: str | None = None
        self._signs = LifeSigns(launch.alive_file) if launch.alive_file is not None else None

    async def answers(self, timeout_s: float) -> bool:
        """Whether it has loaded."""
        if self.launch.ready_file is not None:
            return self.launch.ready_file.exists()
        return await self._engine.healthy(self.launch, timeout_s)

    async def lives(self, timeout_s: float) -> bool:
        """Whether one that has loaded still answers, or gave a sign of life since this was last asked."""
        if self._signs is not None:
            return self._signs.seen()
        return await self._engine.healthy(self.launch, timeout_s)

    async def figures(self, timeout_s: float) -> EngineFigures | None:
        """What it tells of itself. A gang has no address to ask: it reports to its gateway."""
        return await self._engine.figures(self.launch, timeout_s) if self.launch.address else None

    def loaded(self) -> str:
        """How far it has loaded, in words."""
        return load_progress(self.process.log_tail(_PROGRESS_BYTES))

    def log_tail(self) -> str:
        """The end of its output, also after it has ended."""
        return self.process.log_tail(_TAIL_BYTES) if self._last_output is None else self._last_output

    async def wait_exit(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.process.wait()

    async def stop(self, grace_s: float) -> None:
        """Asks it to leave, and kills what is left after `grace_s`."""
        self.process.terminate()
        await self.wait_exit(grace_s)
        await self._kill_tree()

    async def end(self) -> None:
        """Leaves no process and no file behind."""
        await self._kill_tree()
        self._last_output = self.log_tail()
        for file in (self.launch.ready_file, self.launch.alive_file, self.launch.access_file):
            if file is not None:
                file.unlink(missing_ok=True)

    async def _kill_tree(self) -> None:
        """Makes the subreaper kill the engine's whole process tree; if it hangs, its process group is killed."""
        if self.process.returncode is None:
            ask_to_kill(self.process.pid)
            await self.wait_exit(_SUBREAPER_S)
        self.process.kill()
        await self.process.wait()
