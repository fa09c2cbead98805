"""The process with the imports of gangs that a worker keeps: gangs are forks of it, and begin seconds sooner.

It is a luxury. Where memory is scarce it is not started, or ended again; where it is not there, gangs import for themselves. Gangs that were
forked from it do not depend on it.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from turnout.errors import Unavailable
from turnout.processes.process import Command, Commands
from turnout.telemetry.log import get_log
from turnout.worker import engine_fork_server
from turnout.worker.fork_server_rules import keeps

IMPORTS = (
    "turnout.cli.warm_gang",
    "turnout.cli.gang_commands",
    "turnout.run.run_gang",
    "turnout.run.run_rank",
    "turnout.engines.wan.load",
    "turnout.engines.wan.gpu_imports",
)
"""By name: none of it is imported here. Engines that are not ours are imported by their ranks."""
ENVIRON = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The first lets libraries ask for a GPU without starting CUDA, which would spoil it for every fork; the second keeps numpy's library
from starting threads, which no fork would have."""
_LOOK_S = 1.0
_PAUSE_S = 5.0  # before it is started again

log = get_log()


class GangForkServer:
    """`free_bytes` reads what memory is free on this machine."""

    def __init__(
        self,
        commands: Commands,
        kept_at: Path,
        free_bytes: Callable[[], int],
        imports: Sequence[str] = IMPORTS,
    ) -> None:
        self._commands = commands
        self._kept_at = kept_at
        self._imports = imports
        self._free_bytes = free_bytes
        self._process: Command | None = None

    @property
    def at(self) -> Path | None:
        """Where it listens, or will in a moment; None while there is none."""
        return self._kept_at if self._process is not None and self._process.returncode is None else None

    @property
    def memory_bytes(self) -> int:
        """What it takes itself; what its forks share with it counts here."""
        if self._process is None or self._process.returncode is not None:
            return 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
            return int(pages) * 4096
        return 0

    async def run(self) -> None:
        """Has it while there is memory for it; starts it again when it ended."""
        try:
            while True:
                if self._process is not None and self._process.returncode is not None:
                    log.warning("gang fork server ended, starting another", said=self._process.last_words())
                    self._process = None
                    await asyncio.sleep(_PAUSE_S)
                if self.at is None and keeps(self._free_bytes(), kept=False):
                    await self._start()
                elif self.at is not None and not keeps(self._free_bytes(), kept=True):
                    log.warning("gang fork server ended: memory is scarce")
                    await self._end()
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._end()

    async def _start(self) -> None:
        # As a module: then, as in `python -m turnout`, engines of one's own are imported from the working directory.
        keep = (sys.executable, "-m", engine_fork_server.__name__, "keep")
        argv = [*keep, str(self._kept_at), *self._imports]
        try:
            self._process = await self._commands.start("gang-fork-server", argv, ENVIRON)
        except Unavailable as err:
            log.warning("gang fork server did not start", error=str(err))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
