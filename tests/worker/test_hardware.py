"""What a machine has, read from a /proc and /sys of a test's making; and one engine at a time on a GPU."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.pace import patient

from turnout.fleet.machine_rules import Gpu, NodeLoad
from turnout.fleet.model_rules import EngineKind
from turnout.run.config import Config
from turnout.run.run_worker import found_engines
from turnout.worker.gpus import open_gpus
from turnout.worker.hardware import GpuGate, cached_weights, hub_cache, read_machine, read_memory

GIB = 2**30


def make_root(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: {64 * GIB // 1024} kB\nMemFree: {8 * GIB // 1024} kB\nMemAvailable: {40 * GIB // 1024} kB\n"
    )
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "total", "free"),
    [
        ("0::/\n", {}, 64, 40),
        ("0::/\n", {"memory.max": "max\n", "memory.current": str(GIB)}, 64, 40),
        (
            "0::/a/b\n",
            {"a/memory.max": str(16 * GIB), "a/memory.current": str(10 * GIB), "a/b/memory.max": "max"},
            16,
            6,
        ),
        (
            "0::/\n",
            {
                "memory.max": str(8 * GIB),
                "memory.current": str(7 * GIB),
                "memory.stat": f"inactive_file {3 * GIB}\n",
            },
            8,
            4,
        ),
        (
            "5:cpu:/x\n4:memory:/docker/x\n",
            {"memory/memory.limit_in_bytes": str(4 * GIB), "memory/memory.usage_in_bytes": str(GIB)},
            4,
            3,
        ),
        ("0::/\n", {"memory.max": str(2 * GIB), "memory.current": str(3 * GIB)}, 2, 0),
    ],
    ids=["none", "unlimited", "parent", "page-cache", "v1-container", "over"],
)
def test_memory_is_what_the_cgroups_leave(
    tmp_path: Path, cgroup: str, files: dict[str, str], total: int, free: int
) -> None:
    assert read_memory(make_root(tmp_path, cgroup, files)) == (total * GIB, free * GIB)


def test_this_machine_can_be_read() -> None:
    machine = read_machine(open_gpus(), ["builtin:smollm2"])
    assert machine.memory_bytes >= machine.free_memory_bytes > 0
    assert machine.cpus >= 1
    assert machine.weights == {"builtin:smollm2"}


def test_a_cpu_quota_counts(tmp_path: Path) -> None:
    root = make_root(tmp_path, "0::/\n", {"cpu.max": "100000 100000\n"})
    assert read_machine(tuple, root=root).cpus == 1


def test_weights_in_a_cache_are_named(tmp_path: Path) -> None:
    (tmp_path / "models--acme--small/snapshots/abc").mkdir(parents=True)
    (tmp_path / "models--acme--never-fetched").mkdir()
    assert cached_weights(tmp_path) == ["acme/small"]
    assert cached_weights(tmp_path / "nothing") == []
    assert hub_cache({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}) == Path("/c")
    assert hub_cache({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path("/h/hub")
    assert hub_cache({"XDG_CACHE_HOME": "/x"}) == Path("/x/huggingface/hub")
    assert hub_cache({}) == Path("~/.cache/huggingface/hub").expanduser()


async def test_one_engine_at_a_time_loads_on_a_gpu() -> None:
    gate, order = GpuGate(tuple), list[str]()
    first_is_in, first_may_leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with gate.loading((0, 1), 0):
            first_is_in.set()
            await first_may_leave.wait()
            order.append("first")

    async def second() -> None:
        await first_is_in.wait()
        async with gate.loading((1,), 0):
            order.append("second")

    async def elsewhere() -> None:
        await first_is_in.wait()
        async with gate.loading((2,), 0):
            order.append("elsewhere")
        first_may_leave.set()

    await asyncio.wait_for(asyncio.gather(first(), second(), elsewhere()), patient(5))
    assert order == ["elsewhere", "first", "second"]


async def test_a_start_waits_until_freed_memory_is_free() -> None:
    readings = iter([1, 1, 3])
    gate = GpuGate(lambda: (Gpu(0, 4 * GIB, next(readings) * GIB),))
    async with gate.loading((0,), 2 * GIB):
        assert next(readings, None) is None, "it looked until there was enough"


async def test_memory_that_never_comes_free_does_not_block_for_ever() -> None:
    gate = GpuGate(lambda: (Gpu(0, 4 * GIB, 0),), freed_timeout_s=0.01)
    async with asyncio.timeout(patient(5)), gate.loading((0,), 2 * GIB):
        pass


def test_a_worker_renders_where_torch_is_and_needs_nothing_of_the_service() -> None:
    assert {EngineKind.COMMAND, EngineKind.LLAMACPP, EngineKind.VIDEO} <= found_engines(Config())


def test_replicas_may_be_given_less_memory_than_the_machine_has() -> None:
    whole = read_machine(tuple)
    assert read_machine(tuple, max_memory_bytes=whole.memory_bytes * 2).memory_bytes == whole.memory_bytes
    part = read_machine(tuple, max_memory_bytes=1000)
    assert (part.memory_bytes, part.free_memory_bytes) == (1000, 1000)


def test_what_processors_and_network_did_is_counted_by_the_kernel(tmp_path: Path) -> None:
    root = make_root(tmp_path, "0::/\n", {})
    assert read_machine(tuple, root=root).load is None, "it does not tell"
    hertz = os.sysconf("SC_CLK_TCK")
    (root / "proc/stat").write_text(f"cpu  {3 * hertz} {hertz} 0 99999 99999 0 0 0 7777 0\ncpu0 1 1\n")
    (root / "proc/net").mkdir()
    (root / "proc/net/dev").write_text(
        "Inter-|   Receive\n face |bytes\n"
        "    lo: 55 1 0 0 0 0 0 0 55 1 0 0 0 0 0 0\n"
        "  eth0: 1000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n  eth1:10 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n"
    )
    assert read_machine(tuple, root=root).load == NodeLoad(4000, 1010, 304)
    real = read_machine(tuple).load
    assert real is not None and real.cpu_ms > 0
