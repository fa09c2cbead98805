"""A rank's sign of life, written to a pipe that its supervisor reads.

A thread says «alive» every second: it falls silent when the process is stopped or hangs with the interpreter
locked. The rank's own work says «moved» at every command: it falls silent when a collective never returns. Once, it
says «ready»: its model is loaded.
"""

import contextlib
import os
import threading

ALIVE = b"."
MOVED = b"m"
READY = b"r"
_EVERY_S = 1.0


class Pulse:
    """`fd` None (no supervisor, as under torchrun) makes every call a no-op."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_blocking(fd, False)  # a full pipe means that nobody reads: never wait for it
            threading.Thread(target=self._beat, name="pulse", daemon=True).start()

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
