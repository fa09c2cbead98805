"""Which network interface ranks talk over: the one that the operator says, or that Ray's nodes talk over."""

import fcntl
import socket
import struct
from collections.abc import Mapping

from turnout.errors import Misconfigured

_SIOCGIFADDR = 0x8915
_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def socket_variables(environ: Mapping[str, str], configured: str | None, address: str) -> dict[str, str]:
    """What to set so that gloo and NCCL use the interface that is configured, or has the address. A variable that the
    operator set on the node stays as it is. Raises Misconfigured."""
    missing = [name for name in _VARIABLES if name not in environ]
    interface = configured or (interface_of(address) if missing else "")
    if interface is None:
        raise Misconfigured(
            f"no interface here has the address {address}, which Ray gave this node: set ray_interface"
        )
    return dict.fromkeys(missing, interface)


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
