"""Signs of life: a process touches a file while its event loop runs, and whoever watches over it sees the file change.

A process that hangs (stopped, or its loop blocked) looks alive to the kernel: its port still takes connections. `turnout up` and
workers read the file by `LifeSigns`, Kubernetes by a probe that looks at the file's age.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

EVERY_S = 2.0


@contextmanager
def giving_signs(file: Path | None) -> Generator[None]:
    """Touches the file for as long as the context lasts, from the running event loop. By a timer: it shows the loop's life and
    cannot end the work."""
    if file is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def touch() -> asyncio.TimerHandle:
        nonlocal timer
        with suppress(OSError):  # whoever misses the sign acts
            file.touch(mode=0o600)
        timer = loop.call_later(EVERY_S, touch)
        return timer

    timer = touch()
    try:
        yield
    finally:
        timer.cancel()


class LifeSigns:
    """What a watcher sees of one file. Times of two clocks are never compared: a machine that slept does no harm."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._touched_ns = 0

    def seen(self) -> bool:
        """Whether the file was touched since this was last asked."""
        before, self._touched_ns = self._touched_ns, self._read()
        return self._touched_ns not in (0, before)

    def forget(self) -> None:
        """What was touched is of an earlier process."""
        self.file.unlink(missing_ok=True)
        self._touched_ns = 0

    def _read(self) -> int:
        try:
            return self.file.stat().st_mtime_ns
        except OSError:
            return 0
