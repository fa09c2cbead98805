"""Runs an engine and owns all processes that it starts: `python -m turnout.worker.subreaper COMMAND…`.

vLLM's API server leaves its engine processes alive, with their GPU memory, when it is killed or crashes
(vllm-project/vllm#55510). The subreaper adopts such orphans (the kernel hands them to the nearest subreaper) and
ends with the engine's own exit status only when none is left. When the worker dies, however it dies, the
subreaper kills them all. One thread, no imports beyond the standard library: it lives as long as the engine.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ALL = signal.SIGUSR1  # from the kernel when our owner died, or from the owner itself
_WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGIO, _KILL_ALL}


def ask_to_kill(pid: int) -> None:
    """Makes the subreaper `pid` kill the engine's whole tree, and exit."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, _KILL_ALL)


def main() -> None:
    end_as(run_under(lambda: _become(sys.argv[1:])))


def run_under(run: Callable[[], NoReturn], owner: socket.socket | None = None) -> int:
    """Runs `run` in a child, and returns the child's wait status when no process that it started is left.

    `owner` is a connection to whoever asked for it: a byte from there asks the engine to leave, and the end of the
    connection kills it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Until here the tether would kill us with our parent; from here on we get a signal instead. With an owner it is that one's
    # end that counts: a fork server may go, and its engines stay.
    _prctl(_PR_SET_PDEATHSIG, _KILL_ALL if owner is None else 0)
    engine = os.fork()
    if engine == 0:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        run()
    if owner is not None:
        _signal_when_sent(owner)
    while True:
        match signal.sigwait(_WATCHED):
            case signal.SIGCHLD:
                status = _reap(engine)
                if status is not None:
                    _kill_all()
                    return status
            case signal.SIGTERM | signal.SIGINT:
                _ask_to_leave(engine)
            case signal.SIGIO if owner is not None and (sent := _receive(owner)) != b"":
                if sent:
                    _ask_to_leave(engine)
            case _:
                _kill_all()
                os._exit(1)


def _become(command: list[str]) -> NoReturn:
    try:
        os.execvp(command[0], command)
    except OSError as err:
        print(f"cannot run {command[0]}: {err.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


def _ask_to_leave(engine: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(engine, signal.SIGTERM)


def _signal_when_sent(owner: socket.socket) -> None:
    """A SIGIO for every byte from the owner, and for what came before."""
    owner.setblocking(False)
    fcntl.fcntl(owner, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(owner, fcntl.F_SETFL, fcntl.fcntl(owner, fcntl.F_GETFL) | os.O_ASYNC)
    os.kill(os.getpid(), signal.SIGIO)


def _receive(owner: socket.socket) -> bytes | None:
    """What the owner sent: None if nothing, b"" if the connection has ended."""
    try:
        return owner.recv(16)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _reap(engine: int) -> int | None:
    """Collects every child that has ended; the engine's wait status, if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == engine:
                found = status
    return found


def _kill_all() -> None:
    """Kills and collects descendants until there are none; the killed ones' children become ours in turn."""
    while True:
        for pid in _ours():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _ours() -> list[int]:
    me, group = os.getpid(), os.getpgrp()
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(words[1]) == me or int(words[2]) == group:
            found.append(int(name))
    return found


def end_as(status: int) -> NoReturn:
    """Ends as the engine did, so that our owner sees its exit code or its signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # of SIGKILL there is no other disposition
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, int(value))


if __name__ == "__main__":
    main()
