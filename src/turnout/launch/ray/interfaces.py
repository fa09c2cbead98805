"""Which network interface has an address: ranks talk over the one that Ray's nodes talk over."""

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915


def interface_of(address: str) -> str | None:
    """The interface with this IPv4 address; None when there is none (another machine's, or IPv6)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
