"""The service of this machine without a terminal: how `turnout up --detach` starts it, and `turnout down` ends it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from turnout.errors import TurnoutError
from turnout.run.state_dir import find_holder, make_writable

LOG = Path("logs/up.log")
LOG_TAIL = 20
_CHECK_S = 0.2


def start_detached(state_dir: Path, words: Sequence[str]) -> None:
    """Starts `turnout WORDS` in a session of its own, and returns once it is up: what it says then is printed here."""
    make_writable(state_dir)
    log = state_dir / LOG
    log.parent.mkdir(exist_ok=True, mode=0o700)
    print("Starting Turnout …", file=sys.stderr)
    told, tell = os.pipe()
    with os.fdopen(os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "ab") as out:
        start = os.fstat(out.fileno()).st_size
        process = subprocess.Popen(
            [sys.executable, "-m", "turnout", *words, "--ready-fd", str(tell)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=[tell],
            start_new_session=True,
        )
    os.close(tell)
    try:
        with os.fdopen(told, encoding="utf-8") as screen:
            said = screen.read()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if said:
        print(said, end="", flush=True)
        return
    code = process.wait()
    with log.open("rb") as written:
        written.seek(start)
        lines = written.read().decode(errors="replace").splitlines()
    print("\n".join(lines[-LOG_TAIL:]), file=sys.stderr)
    raise typer.Exit(code or 1)


def stop_service(state_dir: Path, limit_s: float) -> bool:
    """Ends the service that holds this directory, and waits until it has drained. False: there was none."""
    pid = find_holder(state_dir)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    print(f"Draining Turnout (pid {pid}) …", file=sys.stderr)
    deadline = time.monotonic() + limit_s
    while find_holder(state_dir) == pid:
        if time.monotonic() > deadline:
            raise TurnoutError(
                f"Turnout (pid {pid}) has not ended after {limit_s:.0f} s; see {state_dir / LOG.parent}"
            )
        time.sleep(_CHECK_S)
    return True
