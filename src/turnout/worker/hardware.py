"""What this machine has beside GPUs: memory and processors by the kernel and its cgroups, weights on its disk."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from turnout.fleet.machine_rules import Machine, MachineFinding
from turnout.fleet.model_rules import ENGINE_SERVERS, EngineKind
from turnout.worker.gpus import ReadGpus
from turnout.worker.node_load import read_node_load

_FREED_TICK_S = 0.1


def read_machine(
    read_gpus: ReadGpus,
    weights: Iterable[str] = (),
    root: Path = Path("/"),
    *,
    engines: frozenset[EngineKind] = ENGINE_SERVERS,
    max_memory_bytes: int | None = None,
    taken_bytes: int = 0,
    disk: Path | None = None,
    findings: tuple[MachineFinding, ...] = (),
) -> Machine:
    """`max_memory_bytes` is what replicas may take together, where that is less than the machine has without `taken_bytes`, which
    the worker takes itself. `disk` is a directory on the disk to measure."""
    total, free = read_memory(root)
    total = max(0, total - taken_bytes)
    if max_memory_bytes is not None:
        total = min(total, max_memory_bytes)
    free = min(free, total)
    size, left = read_disk(disk) if disk is not None else (0, 0)
    return Machine(
        read_gpus(),
        total,
        free,
        count_cpus(root),
        frozenset(weights),
        engines,
        size,
        left,
        findings,
        read_node_load(root),
    )


def read_disk(directory: Path) -> tuple[int, int]:
    """(size, free) bytes; zeros if it cannot be read."""
    try:
        found = shutil.disk_usage(directory)
    except OSError:
        return 0, 0
    return found.total, found.free


def read_memory(root: Path = Path("/")) -> tuple[int, int]:
    """(total, free) bytes: the machine's, or what the cgroups leave of it."""
    lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    figures = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}
    total, free = figures["MemTotal"], figures.get("MemAvailable", figures["MemFree"])
    for folder in _cgroup_folders(root):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        if limit is not None:
            total = min(total, limit)
            # File pages that nobody uses are given back under pressure.
            free = min(free, max(0, limit - used + _inactive_file(folder)))
    return total, free


def count_cpus(root: Path = Path("/")) -> int:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _cgroup_folders(root):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                cpus = min(cpus, max(1, int(quota) // int(period)))
    return cpus


def _cgroup_folders(root: Path) -> list[Path]:
    """The folders of our cgroup and those above it, for both versions of cgroups."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top = root / "sys/fs/cgroup"
            if controllers:
                if "memory" not in controllers.split(","):
                    continue
                top = top / "memory"
            folder = top / path.lstrip("/")
            # In a container the path is the host's, and only the top folder is to be seen.
            found += [f for f in (folder, *folder.parents) if f.is_relative_to(top) and f.is_dir()]
    return found


def _inactive_file(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where engines keep what they fetch from the Hugging Face hub, by the variables that they read themselves."""
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def cached_weights(hub: Path) -> list[str]:
    """The names of the models in a Hugging Face cache that have at least one whole snapshot begun."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for folder in hub.glob("models--*"):
            snapshots = folder / "snapshots"
            if snapshots.is_dir() and any(snapshots.iterdir()):
                found.append(folder.name.removeprefix("models--").replace("--", "/"))
    return found


class GpuGate:
    """Lets one engine at a time load on a GPU: an engine sizes its cache by the memory that it finds free.

    Before that it waits, for a bounded time, until the memory is free: a process that has ended gives its memory
    back a moment later.
    """

    def __init__(self, read_gpus: ReadGpus, freed_timeout_s: float = 20.0) -> None:
        self._read = read_gpus
        self._freed_timeout_s = freed_timeout_s
        self._locks: dict[int, asyncio.Lock] = {}

    @asynccontextmanager
    async def loading(self, gpus: Sequence[int], need_bytes: int) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for index in sorted(set(gpus)):  # in one order, so that two never wait for each other
                await stack.enter_async_context(self._locks.setdefault(index, asyncio.Lock()))
            if gpus and need_bytes:
                await self._wait_freed(set(gpus), need_bytes)
            yield

    async def _wait_freed(self, gpus: set[int], need_bytes: int) -> None:
        deadline = time.monotonic() + self._freed_timeout_s
        while any(gpu.index in gpus and gpu.free_bytes < need_bytes for gpu in self._read()):
            if time.monotonic() > deadline:
                return  # the engine's own words about it are better than ours
            await asyncio.sleep(_FREED_TICK_S)
