"""What workers and gangs were there during a chaos run, seen from outside; the service's own account must agree with it."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psutil
from tests.chaos.cluster import WORKERS, Cluster

_LOOK_S = 0.5
_LOST_S = 5.0  # of a worker that is killed: 3 s, and what passes between two looks
_EDGE_S = 10.0  # of two workers: what is not booked yet at the first look and at the last
_STATES = ("busy", "loading", "idle", "asleep")


class GpuRecord:
    """A machine without GPUs is one device, so a worker has one, and a gang holds it as long as it is there."""

    def __init__(self, cluster: Cluster, before: dict[str, Any]) -> None:
        self._cluster = cluster
        self._before = before["total"]["gpu_seconds"]
        self._workers_s = self._gangs_s = 0.0
        self._workers: set[int] = set()

    async def watch(self) -> None:
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            passed_s, looked_at = now - looked_at, now
            alive = [
                child.pid
                for name in WORKERS
                if (child := self._cluster.children.get(name)) and _lives(child.pid)
            ]
            self._workers.update(alive)
            self._workers_s += passed_s * len(alive)
            self._gangs_s += passed_s * len(self._cluster.gangs())

    def disagreements(self, usage: dict[str, Any]) -> Iterator[str]:
        """What is wrong with the service's account."""
        total = usage["total"]["gpu_seconds"]
        for kind in ("data", "models", "tenants", "workers"):
            lines = [line["gpu_seconds"] for line in usage[kind]]
            if any(abs(line["held"] - sum(line[s] for s in _STATES)) > 0.002 for line in lines):
                yield f"{kind}: held is not the sum of its states"
            if abs(sum(line["held"] for line in lines) - total["held"]) > 0.01 * (1 + len(lines)):
                yield f"{kind} held {sum(line['held'] for line in lines):.1f} s, all {total['held']:.1f} s"
        held, free = (total[name] - self._before[name] for name in ("held", "free"))
        killed_s = _LOST_S * (len(self._workers) - len(WORKERS))
        if held + free > self._workers_s + _EDGE_S:
            yield f"{held + free:.1f} s were booked, and workers were there for {self._workers_s:.1f} s"
        if held < self._gangs_s - killed_s - _EDGE_S:
            yield f"{held:.1f} s were held, and gangs were there for {self._gangs_s:.1f} s ({killed_s:.0f} s may be lost)"

    def __str__(self) -> str:
        return (
            f"workers {self._workers_s:.0f} s, gangs {self._gangs_s:.0f} s by {len(self._workers)} processes"
        )


def _lives(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
