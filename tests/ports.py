"""Ports for programs that must be told theirs."""

import contextlib
import secrets
import socket

# Above those that workers choose for engines, and below those that the kernel gives to whoever asks for any and to outgoing
# connections: of these nobody gets one by chance between our choice and the program's start.
_FIRST, _LAST = 32_001, 32_767


def free_ports(count: int, host: str = "") -> list[int]:
    """So many different ones, free at all addresses unless one is named."""
    found: set[int] = set()
    while len(found) < count:
        port = _FIRST + secrets.randbelow(
            _LAST - _FIRST + 1
        )  # Hypothesis seeds `random`: processes would choose the same
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            found.add(port)
    return list(found)


def free_port(host: str = "") -> int:
    return free_ports(1, host)[0]
