"""Log files of child processes: bounded while they are written.

A child has its log open for appending. So a log that has grown is copied aside and cut to nothing where it lies: the child
needs no pipe that could break or block, and goes on whoever else dies. What it writes between the copy and the cut is
lost.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from turnout.telemetry.log import get_log

MAX_FILE_BYTES = 8 * 2**20
_MAX_FILES = 80
_CHECK_EVERY_S = 2.0
_PIECE_BYTES = 1 << 20


async def keep_bounded(folders: Sequence[Path], max_bytes: int) -> None:
    """Runs for ever. `max_bytes` are for each folder."""
    while True:
        for folder in folders:
            await asyncio.to_thread(bound, folder, max_bytes)
        await asyncio.sleep(_CHECK_EVERY_S)


def bound(folder: Path, max_bytes: int, max_file_bytes: int = MAX_FILE_BYTES) -> None:
    """Cuts what is too long; removes the oldest while there are too many, or too many bytes. What was set aside goes
    first, because a process may still write the others."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > max_file_bytes:
                _set_aside(log, max_file_bytes)
    found = [(path, stat) for path in folder.glob("*.log*") if (stat := _stat(path)) is not None]
    found.sort(key=lambda entry: (entry[0].suffix == ".log", entry[1].st_mtime))
    total, count = sum(stat.st_size for _, stat in found), len(found)
    for path, stat in found:
        if total <= max_bytes and count <= _MAX_FILES:
            break
        path.unlink(missing_ok=True)
        total, count = total - stat.st_size, count - 1


def make_place(log: Path) -> None:
    """For the log of a process that is about to start; one that has grown large is set aside."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if log.exists() and log.stat().st_size > MAX_FILE_BYTES:
        log.replace(_aside(log))


def _set_aside(log: Path, keep_bytes: int) -> None:
    """Keeps the last bytes in another file, if there is room for them, and empties the log in any case."""
    with log.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a worker and `turnout up` may share a folder
        except BlockingIOError:
            return
        size = os.fstat(file.fileno()).st_size
        if size <= keep_bytes:
            return
        try:
            _copy(file.fileno(), size - keep_bytes, size, _aside(log))
        except OSError as err:
            with contextlib.suppress(OSError):
                _aside(log).unlink(missing_ok=True)
            get_log().warning("log file truncated without keeping a copy", file=str(log), reason=err.strerror)
        os.ftruncate(file.fileno(), 0)


def _copy(source: int, start: int, end: int, target: Path) -> None:
    target.unlink(missing_ok=True)
    with os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        while piece := os.pread(source, min(_PIECE_BYTES, end - start), start):
            out.write(piece)
            start += len(piece)


def _aside(log: Path) -> Path:
    return log.with_suffix(".log.1")


def _stat(path: Path) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat()
    return None
