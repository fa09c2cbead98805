"""A rank's heartbeat, written to a pipe that its supervisor reads.

A thread writes ALIVE every second; that stops when the process is stopped or hangs with the interpreter locked. The
rank's own work writes MOVED at every command; that stops when a collective never returns. READY is written once, when
the model is loaded.
"""

import contextlib
import os
import threading

ALIVE = b"."
MOVED = b"m"
READY = b"r"
_EVERY_S = 1.0


class RankHeartbeat:
    """`fd` None (no supervisor, as under torchrun) makes every call a no-op."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_blocking(fd, False)  # a full pipe means that nobody reads: never wait for it
            threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def moved(self) -> None:
        self._write(MOVED)

    def ready(self) -> None:
        self._write(READY)

    def _beat(self) -> None:
        while True:
            self._write(ALIVE)
            threading.Event().wait(_EVERY_S)

    def _write(self, sign: bytes) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, sign)
