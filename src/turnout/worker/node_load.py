"""What this machine's processors and network did since it was started, by the kernel: counts that only grow."""

import os
from pathlib import Path

from turnout.fleet.machine_rules import NodeLoad

_LOOPBACK = "lo"
_IDLE = (3, 4)  # idle, iowait: the fields of a line of /proc/stat
_FIELDS = 8  # the rest are guests', which are in user's already


def read_node_load(root: Path = Path("/")) -> NodeLoad | None:
    """None where the kernel does not tell."""
    try:
        first = (root / "proc/stat").read_text().splitlines()[0].split()[1 : 1 + _FIELDS]
        ticks = sum(int(one) for n, one in enumerate(first) if n not in _IDLE)
        received, sent = _network(root)
    except (OSError, ValueError, IndexError):
        return None
    return NodeLoad(ticks * 1000 // os.sysconf("SC_CLK_TCK"), received, sent)


def _network(root: Path) -> tuple[int, int]:
    received = sent = 0
    for line in (root / "proc/net/dev").read_text().splitlines()[2:]:
        name, _, figures = line.partition(":")
        if name.strip() != _LOOPBACK:
            counted = figures.split()
            received += int(counted[0])
            sent += int(counted[8])
    return received, sent
