"""The process with the imports of gangs: when a worker has it, and what it counts for."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.conftest import wait_until

from turnout.engines.servers.gang_launch import GangProgram, plan
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.fleet.replica_rules import ReplicaId
from turnout.processes.commands import LocalCommands
from turnout.worker import gang_fork_server
from turnout.worker.fork_server_rules import keeps
from turnout.worker.gang_fork_server import GangForkServer
from turnout.worker.hardware import read_machine, read_memory

GIB = 2**30
MODEL = Model("m", EngineKind.VIDEO, "builtin:wan-tiny-t2v", video=VideoPart(FAMILIES["wan-tiny-t2v"]))


def test_it_is_started_with_much_memory_and_ended_with_little() -> None:
    assert [keeps(free * GIB, kept=False) for free in (1, 3, 4, 9)] == [False, False, True, True]
    assert [keeps(int(free * GIB), kept=True) for free in (0.5, 1, 3)] == [False, True, True]


@pytest.mark.parametrize("fork_server", [None, Path("/run/forks")])
def test_a_gang_asks_it_where_there_is_one(fork_server: Path | None) -> None:
    program = GangProgram(Path("c.json"), Path("/run"), 10.0, fork_server)
    argv = plan(MODEL, (), ReplicaId("m-1"), program).argv
    assert argv[argv.index("gang") :][:3] == ("gang", "--config", "c.json")
    assert ("/run/forks" in argv and "prefer" in argv) == (fork_server is not None)


async def test_it_goes_when_memory_is_scarce_comes_back_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_fork_server, "_LOOK_S", 0.05)
    monkeypatch.setattr(gang_fork_server, "_PAUSE_S", 0.05)
    free = 9 * GIB
    forks = GangForkServer(LocalCommands(tmp_path), tmp_path / "forks", lambda: free, ["json"])
    assert forks.at is None and forks.memory_bytes == 0
    running = asyncio.create_task(forks.run())
    await wait_until(lambda: (tmp_path / "forks").exists(), "it to listen")
    assert forks.at == tmp_path / "forks"
    await wait_until(lambda: forks.memory_bytes > 2**20, "its memory")
    free = 0
    await wait_until(lambda: forks.at is None, "it to go")
    assert forks.memory_bytes == 0
    free = 9 * GIB
    await wait_until(lambda: forks.at is not None, "it to come back")
    running.cancel()
    await asyncio.wait({running})
    assert forks.at is None


async def test_one_that_cannot_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_fork_server, "_LOOK_S", 0.02)
    monkeypatch.setattr(gang_fork_server, "_PAUSE_S", 0.02)
    tries: list[str] = []

    class Ends(LocalCommands):
        async def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str]):  # type: ignore[no-untyped-def]
            tries.append(name)
            return await super().start(name, ["false"], environ)

    forks = GangForkServer(Ends(tmp_path), tmp_path / "forks", lambda: 9 * GIB, ["json"])
    running = asyncio.create_task(forks.run())
    await wait_until(lambda: len(tries) >= 3, "three tries")
    running.cancel()
    await asyncio.wait({running})


def test_what_it_takes_is_not_offered_to_replicas() -> None:
    total, _ = read_memory()
    assert read_machine(lambda: (), taken_bytes=GIB).memory_bytes == total - GIB


def test_what_replicas_were_given_stays_theirs() -> None:
    """Else a model that fits exactly would never be served, for the sake of a luxury."""
    bounded = read_machine(lambda: (), taken_bytes=GIB, max_memory_bytes=3 * GIB)
    assert (bounded.memory_bytes, bounded.free_memory_bytes <= 3 * GIB) == (3 * GIB, True)
