"""A file of the engines that this worker started, so that the next worker can kill what a killed one left.

A process is identified by its id and its start time: ids are used again, the pair is not (within one boot).
"""

import contextlib
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

MARK = "TURNOUT_REPLICA"  # in an engine's environment: identifies its processes when their leader is gone


@dataclass(frozen=True, slots=True)
class Entry:
    """An engine's process group. `began` is in clock ticks since the machine's start."""

    replica: str
    pid: int
    began: int
    boot: str
    model: str = ""


class Ledger:
    """One file, replaced in one move, and written by one worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = {entry.pid: entry for entry in _read(path)}

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def add(self, replica: str, pid: int, model: str) -> None:
        began = started_at(pid)
        if began is not None:
            self._entries[pid] = Entry(replica, pid, began, boot_id(), model)
            self._write()

    def remove(self, pid: int) -> None:
        if self._entries.pop(pid, None) is not None:
            self._write()

    def sweep(self) -> list[Entry]:
        """Kills the process groups of all entries that still run, empties the file, and returns those entries."""
        boot = boot_id()
        left = [entry for entry in self._entries.values() if entry.boot == boot and _kill_group(entry)]
        self._entries.clear()
        self._write()
        return left

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(entry) for entry in self._entries.values()]))
        fresh.replace(self._path)


def started_at(pid: int) -> int | None:
    """When a process began, in ticks since boot; None if there is none, or only a zombie."""
    words = _stat(pid)
    return None if words is None or words[0] == b"Z" else int(words[19])


def boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _kill_group(entry: Entry) -> bool:
    began = started_at(entry.pid)
    if began is None:
        # The leader is gone. A process in its group is ours only if it carries our mark.
        if not any(_carries_mark(pid, entry.replica) for pid in _members(entry.pid)):
            return False
    elif began != entry.began:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(entry.pid, signal.SIGKILL)
    return True


def _members(group: int) -> list[int]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if (words := _stat(pid)) and int(words[2]) == group and words[0] != b"Z"]


def _carries_mark(pid: int, replica: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={replica}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (state) on; the second may hold anything."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return None


def _read(path: Path) -> list[Entry]:
    try:
        return [Entry(**entry) for entry in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []
