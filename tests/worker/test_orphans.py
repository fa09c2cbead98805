"""What a killed worker leaves, and what its successor does about it."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.engine_servers.engines import marked
from tests.pace import patient
from tests.worker.conftest import FAKE_ENGINE

from turnout.worker.orphans import MARK, Ledger, started_at

SLEEPER = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).wait()"
)


@pytest.fixture
def mark() -> str:
    return f"orphan-{secrets.token_hex(6)}"


@pytest.fixture
def engine(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """An engine with a child, as a worker that was killed without a subreaper would leave it."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], start_new_session=True, env={**os.environ, MARK: mark}
    )
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def test_a_successor_kills_the_whole_group_of_what_was_left(
    engine: subprocess.Popen[bytes], state_dir: Path, mark: str
) -> None:
    await wait_until(lambda: len(marked(mark)) == 2, "the engine's child")
    Ledger(state_dir / "engines.json").add(mark, engine.pid, "m")
    assert [entry.pid for entry in Ledger(state_dir / "engines.json").sweep()] == [engine.pid]
    engine.wait(patient(10))
    await wait_until(lambda: marked(mark) == [], "the group to end")
    assert Ledger(state_dir / "engines.json").sweep() == []


async def test_a_group_whose_leader_is_dead_is_known_by_its_mark(
    engine: subprocess.Popen[bytes], state_dir: Path, mark: str
) -> None:
    await wait_until(lambda: len(marked(mark)) == 2, "the engine's child")
    Ledger(state_dir / "engines.json").add(mark, engine.pid, "m")
    engine.kill()
    engine.wait(patient(10))
    assert len(marked(mark)) == 1
    assert len(Ledger(state_dir / "engines.json").sweep()) == 1
    await wait_until(lambda: marked(mark) == [], "the group to end")


@pytest.mark.parametrize("lie", [{"began": 1}, {"boot": "another boot"}])
async def test_a_process_that_only_has_the_same_id_is_left_alone(
    engine: subprocess.Popen[bytes], state_dir: Path, lie: dict[str, object]
) -> None:
    path = state_dir / "engines.json"
    Ledger(path).add("r", engine.pid, "m")
    [entry] = json.loads(path.read_text())
    path.write_text(json.dumps([{**entry, **lie}]))
    assert Ledger(path).sweep() == []
    assert engine.poll() is None


def test_a_damaged_ledger_is_an_empty_one(state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "engines.json").write_text('[{"pid": 1')
    assert Ledger(state_dir / "engines.json").sweep() == []


def test_a_dead_process_has_no_start_time(engine: subprocess.Popen[bytes]) -> None:
    assert started_at(engine.pid) is not None
    engine.kill()
    engine.wait()
    assert started_at(engine.pid) is None


OWNER = """
import asyncio, sys
from pathlib import Path
from turnout.processes.commands import LocalCommands
from turnout.worker.orphans import MARK

async def main():
    argv = [sys.executable, "-m", "turnout.worker.subreaper", sys.executable, *sys.argv[3:]]
    await LocalCommands(Path(sys.argv[1])).start("engine", argv, {MARK: sys.argv[2]})
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_worker_killed_outright_leaves_no_process(mark: str, tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(tmp_path), mark, str(FAKE_ENGINE), "0", "--with-core"
    )
    await wait_until(lambda: len(marked(mark)) == 4, "the engine and what it started")
    family = marked(mark)
    owner.kill()
    await owner.wait()
    await wait_until(
        lambda: [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == [],
        "all to end with their worker",
    )
