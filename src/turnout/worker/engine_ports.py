"""Ports for engines."""

import ipaddress
import random
import socket

from turnout.engines.servers.launch_plan import LOOPBACK
from turnout.errors import Misconfigured, Unavailable

# Below the range that the kernel gives to outgoing connections, so that none of those takes a port between our
# choice and the engine's start.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 200


class EnginePorts:
    """Never gives the same port twice in a row, so that two engines that start together do not collide."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._given: list[int] = []

    def take(self, host: str = LOOPBACK) -> int:
        for _ in range(_TRIES):
            port = self._chance.randint(_FIRST, _LAST)
            if port not in self._given and _is_free(host, port):
                self._given = [*self._given[-100:], port]
                return port
        raise Unavailable(f"no port of {host} is free for an engine")


def check_engine_host(host: str) -> None:
    """Raises Misconfigured unless engines can listen there and others can mean this machine by it."""
    try:
        address = ipaddress.ip_address(host)
        if address.is_unspecified or address.is_multicast or address.is_link_local:
            raise ValueError
    except ValueError as err:
        raise Misconfigured(f"engine_host: {host!r} is not an IP address that one machine has") from err
    if not _is_free(host, 0):
        raise Misconfigured(f"engine_host: {host} is not an address of this machine")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
