"""What the machine gave: a process's CPU time, and how scarce CPU was during a run."""

import time
from pathlib import Path

import psutil

_PRESSURE = Path("/proc/pressure/cpu")


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class Pressure:
    """How much of the time since its making someone on this machine waited for a core."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._waited_us = _waited_us()

    def note(self) -> str:
        now_us = _waited_us()
        if now_us is None or self._waited_us is None:
            return "How scarce CPU was is not known on this machine."
        share = (now_us - self._waited_us) / 1e6 / (time.monotonic() - self._began)
        return f"CPU pressure: something waited for a core {100 * share:.0f} % of the time."


def _waited_us() -> int | None:
    try:
        return int(_PRESSURE.read_text().splitlines()[0].rpartition("total=")[2])
    except (OSError, ValueError, IndexError):
        return None
