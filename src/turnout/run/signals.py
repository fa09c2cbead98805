"""Asks a role to stop when the process is told to."""

import asyncio
import signal
from collections.abc import Callable


def on_stop(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
