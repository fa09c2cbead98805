"""Children that start with heavy imports already done: one process imports, and every child is a fork of it.

Importing torch and diffusers takes seconds and much CPU in every process; a fork takes milliseconds and shares
the memory. The importing process runs nothing else, so nothing is mid-way when it forks. Like other children
of ours, these die with their owner: the fork server is tethered to it, and they to the fork server.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from turnout.processes.child import last_line
from turnout.processes.log_files import make_place
from turnout.processes.tether import tether

_TETHERED = "turnout.processes.tethered"


class ForkedChild:
    """One forked child; the same face as any other process of ours."""

    def __init__(self, process: ForkServerProcess, log: Path | None) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        code = self._process.exitcode
        return 1 if code is None else code

    def terminate(self) -> None:
        if self.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()  # it may not lead its own group yet

    def last_words(self) -> str:
        return last_line(self._log) if self._log else ""


class ForkServer:
    """`imports` are done once, when the first child starts. `logs` None: children print where we do."""

    def __init__(self, imports: Sequence[str], logs: Path | None) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_TETHERED, *imports])
        self._logs = logs

    async def start(
        self, name: str, work: Callable[..., None], args: Sequence[Any], environ: Mapping[str, str]
    ) -> ForkedChild:
        """Runs `work(*args)` in a child with `environ` on top of ours; `work` and `args` must pickle."""
        log = self._logs / f"{name}.log" if self._logs else None
        if log is not None:
            make_place(log)
        process = self._context.Process(
            target=_child, args=(log, dict(environ), work, tuple(args)), name=name, daemon=True
        )
        # The server is started by this thread, because a tether is tied to the thread that forks; the wait for
        # its imports, seconds the first time, is left to another.
        forkserver.ensure_running()
        await asyncio.to_thread(process.start)
        return ForkedChild(process, log)


def serve_from_here() -> bool:
    """Makes the server of this process's later children a fork of the process as it is now, with all that it has imported. False
    when another thread runs: what that holds would be held in the fork for ever, so the server will be a new program, as usual."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    multiprocessing.get_context("forkserver").set_forkserver_preload([_TETHERED])
    starting = util.spawnv_passfds
    util.spawnv_passfds = _fork_in_place
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = starting
    return True


def _fork_in_place(_path: str, words: Sequence[str], kept: Sequence[int]) -> int:
    """What the standard library would give to a new interpreter is run by a fork of this one."""
    pid = os.fork()
    if pid:
        return pid
    try:
        gc.freeze()  # or an object that is collected would close a number that is another file's by then
        close_others(kept)
        exec(words[-1], {})  # noqa: S102 - the program that multiprocessing wrote
    finally:
        os._exit(1)


def close_others(kept: Sequence[int]) -> None:
    """Leaves open the standard files and those."""
    numbers = sorted({0, 1, 2, *kept})
    for before, after in pairwise([*numbers, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]):
        os.closerange(before + 1, after)


def heartbeat_pipe() -> tuple[Connection, Connection]:
    """(ours, the child's): a one-way pipe that can be handed to a child."""
    return multiprocessing.get_context("forkserver").Pipe(duplex=False)


def _child(
    log: Path | None, environ: Mapping[str, str], work: Callable[..., None], args: tuple[Any, ...]
) -> None:
    tether(os.getppid())
    os.setsid()
    if log is not None:
        out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.close(out)
    os.environ.update(environ)
    work(*args)
