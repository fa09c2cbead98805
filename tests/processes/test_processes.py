"""Children have one owner and die with it, however it dies."""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until

from turnout.processes.child import Child

OWNER = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from turnout.processes.fork_server import ForkServer
    from turnout.processes.child import Child
    from tests.processes.test_processes import sleep_for_ever

    async def main():
        here = Path(sys.argv[1])
        child = await Child.start("c", ["sleep", "600"], log=here / "c.log")
        forked = await ForkServer([], here).start("f", sleep_for_ever, (), {})
        (here / "pids").write_text(f"{child.pid} {forked.pid}")
        await asyncio.sleep(600)

    if __name__ == "__main__":
        asyncio.run(main())
    """
)


def sleep_for_ever() -> None:
    signal.pause()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_children_die_with_a_killed_owner_even_when_they_are_stopped(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    root = Path(__file__).parents[2]
    owner = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), env={**os.environ, "PYTHONPATH": str(root)}
    )
    pids_file = tmp_path / "pids"
    await wait_until(lambda: pids_file.exists() and len(pids_file.read_text().split()) == 2, "both children")
    pids = [int(pid) for pid in pids_file.read_text().split()]
    await wait_until(
        lambda: psutil.Process(pids[0]).name() == "sleep" and (tmp_path / "f.log").exists(),
        "both to be tethered",
    )
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    owner.kill()
    await owner.wait()
    await wait_until(lambda: all(map(is_gone, pids)), "the children to die")


async def test_stop_asks_first_and_kills_the_whole_group_after(tmp_path: Path) -> None:
    polite = await Child.start("polite", ["sleep", "600"], log=tmp_path / "polite.log")
    assert await polite.stop(10) == -signal.SIGTERM
    stubborn = await Child.start(
        "stubborn",
        ["bash", "-c", "trap '' TERM; echo ready; sleep 600 & wait; sleep 600"],
        log=tmp_path / "s.log",
    )
    await wait_until(lambda: stubborn.last_words() == "ready", "the trap")
    family = psutil.Process(stubborn.pid).children(recursive=True)
    assert await stubborn.stop(0.2) == -signal.SIGKILL
    await wait_until(lambda: all(is_gone(p.pid) for p in family), "the group to die")


async def test_last_words_tell_why_it_died(tmp_path: Path) -> None:
    child = await Child.start(
        "c", [sys.executable, "-c", "raise SystemExit('no disk')"], log=tmp_path / "c.log"
    )
    assert await child.wait() == 1
    assert child.last_words() == "no disk"


async def test_settings_reach_children_by_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_PORT", "1")
    child = await Child.start("c", ["env"], log=tmp_path / "c.log")
    await child.wait()
    assert "TURNOUT_PORT" not in (tmp_path / "c.log").read_text()
