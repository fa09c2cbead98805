"""Tells whether an address is this machine's own."""

import socket
from ipaddress import ip_address


def is_this_machine(host: str) -> bool:
    """Whether an address, or the name "localhost", is this machine's own. Other names are not looked up: whoever
    answers for them decides what they mean."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))  # only an address of one's own can be bound
        except OSError:
            return False
    return not address.is_unspecified
