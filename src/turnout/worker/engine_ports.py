"""Ports for engines."""

import random
import socket

from turnout.engines.servers.launch_plan import LOOPBACK
from turnout.errors import Unavailable

# Below the range that the kernel gives to outgoing connections, so that none of those takes a port between our
# choice and the engine's start.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 200


class EnginePorts:
    """Never gives the same port twice in a row, so that two engines that start together do not collide."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._given: list[int] = []

    def take(self) -> int:
        for _ in range(_TRIES):
            port = self._chance.randint(_FIRST, _LAST)
            if port not in self._given and _is_free(port):
                self._given = [*self._given[-100:], port]
                return port
        raise Unavailable("no port is free for an engine")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
