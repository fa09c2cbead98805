"""One child process and its group, with one owner. Children die with this process, however it dies."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnout.processes.environment_rules import for_services
from turnout.processes.log_files import make_place


class Child:
    """Made by `start`. The child leads its own session, so a terminal's Ctrl-C reaches only the owner."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
        inherited: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> "Child":
        """Starts `argv` with output appended to `log`; `environ` is laid over what is inherited: what services do, unless it is
        given."""
        inherited = for_services(os.environ) if inherited is None else inherited
        make_place(log)
        tethered = [sys.executable, "-m", "turnout.processes.tether", str(os.getpid()), *argv]
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *tethered,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**inherited, **(environ or {})},
                pass_fds=pass_fds,
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        """Asks the child to finish what it must and leave."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the whole group at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, grace_s: float) -> int:
        """Asks, waits for `grace_s`, then kills the group; returns the exit code."""
        self.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.wait()
        self.kill()
        return await self.wait()

    def last_words(self) -> str:
        return last_line(self.log)


def last_line(log: Path) -> str:
    """The last line in a log, for telling an operator why a process died."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""


class LocalLauncher:
    """Runs Turnout's own commands as children of this process, each with a log of its own."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs

    async def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        inherited: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        argv, log = [sys.executable, "-m", "turnout", *arguments], self._logs / f"{name}.log"
        return await Child.start(name, argv, log=log, environ=environ, inherited=inherited, pass_fds=pass_fds)
