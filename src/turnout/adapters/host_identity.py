"""Tells machines and their networks apart, so that a loopback address is taken for what it is."""

import hashlib
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
