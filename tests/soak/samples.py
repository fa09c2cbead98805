"""What a running service holds, measured from outside: memory, descriptors and threads by role, files, Redis."""

import contextlib
import os
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.service import Service, is_engine

from turnout.store.connection import RedisConnection, translated
from turnout.store.valkey import redis_url

PASSING = "Redis keys that end"
"""By themselves, after a minute, an hour (what was used), a day (history) or a month (links): more than a soak lasts, so their
number says what was asked of late."""
ROLES = ("up", "gateway", "manager", "worker", "redis")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """All figures of one moment, by their names."""

    at_s: float
    figures: dict[str, float] = field(default_factory=dict[str, float])


def measured(service: Service) -> dict[str, float]:
    """Of the processes and files. Those of a role that is being restarted are left out."""
    found: defaultdict[str, float] = defaultdict(float)
    family = [psutil.Process(service.pid), *psutil.Process(service.pid).children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.Error):
            role = _role(process, service.pid)
            found["processes"] += 1
            if role:
                found[f"{role} memory MiB"] += process.memory_info().rss / MIB
                found[f"{role} descriptors"] += process.num_fds()
                found[f"{role} threads"] += process.num_threads()
    state = service.state_dir
    for folder, _, files in os.walk(state):  # what vanishes meanwhile is passed over
        if Path(folder).name == "logs":
            continue  # one for each start, up to 80: hours pass until then
        within = "objects" if Path(folder).is_relative_to(state / "objects") else "files beside objects"
        for file in files:
            with contextlib.suppress(OSError):
                found["state MiB"] += (Path(folder) / file).stat().st_size / MIB
                found[within] += 1
    found["temporary files"] = len(list(Path(tempfile.gettempdir()).glob("turnout*")))
    return dict(found)


async def measured_redis(service: Service) -> dict[str, float]:
    directory = service.state_dir / "redis"
    link = RedisConnection(redis_url(directory, (directory / "password").read_text()), "turnout")
    try:
        async with translated():
            memory = await link.client.info("memory")
            space = (await link.client.info("keyspace")).get("db0", {"keys": 0, "expires": 0})
        return {
            PASSING: float(space["expires"]),
            "Redis keys for ever": float(space["keys"] - space["expires"]),
            "Redis data MiB": float(memory["used_memory_dataset"]) / MIB,
        }
    finally:
        await link.close()


def _role(process: psutil.Process, up: int) -> str | None:
    if process.pid == up:
        return "up"
    words = process.cmdline()
    if not words or "turnout.worker.subreaper" in words or is_engine(process):
        return None
    if words[0].endswith("valkey-server"):
        return "redis"
    named = words[words.index("turnout") + 1 :][:1] if "turnout" in words else []
    return named[0] if named and named[0] in ROLES else None
