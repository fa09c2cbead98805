"""Tells machines and their networks apart, so that a loopback address is taken for what it is."""

import hashlib
import socket
from ipaddress import ip_address
from pathlib import Path


def network_name(proc: Path = Path("/proc")) -> str:
    """The same for two processes if, and only if, a loopback port of one is a loopback port of the other: they share a
    running kernel and a network namespace. Empty where that cannot be known."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (proc / "self/ns/net").stat().st_ino
    except OSError:
        return ""
    return hashlib.sha256(f"turnout network {boot} {namespace}".encode()).hexdigest()


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
