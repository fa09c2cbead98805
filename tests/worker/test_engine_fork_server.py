"""A fork server's engines on real processes: whose output they have, how they end, and that none outlives anyone."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until

from turnout.worker import engine_fork_server

TOY = """
import os, signal, subprocess, sys, time

def leave():
    print("says", sys.argv[1], os.environ["WORD"], flush=True)
    sys.exit(int(sys.argv[1]))

def die():
    os.kill(os.getpid(), signal.SIGSEGV)

def stay():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("stays", flush=True)
    time.sleep(600)
"""


class Kept:
    """A fork server that has imported the toy engine."""

    def __init__(self, directory: Path) -> None:
        (directory / "toy.py").write_text(TOY)
        self.path = str(directory / "forks")
        environ = {**os.environ, "PYTHONPATH": str(directory)}
        argv = [sys.executable, engine_fork_server.__file__, "keep", self.path, "toy", "no_such_module"]
        self.process = subprocess.Popen(argv, env=environ)

    async def ask(self, entry: str, *words: str) -> asyncio.subprocess.Process:
        argv = [
            sys.executable,
            "-m",
            "turnout.worker.engine_fork_server",
            "ask",
            self.path,
            f"toy:{entry}",
            *words,
        ]
        pipe = asyncio.subprocess.PIPE
        environ = {**os.environ, "WORD": "of its own"}
        return await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe, env=environ)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    with kept.process:
        yield kept
        kept.process.kill()


async def test_an_engine_has_its_askers_words_variables_and_outputs_and_ends_as_it_ends(kept: Kept) -> None:
    asker = await kept.ask("leave", "3")
    out, _ = await asker.communicate()
    assert out.decode() == "says 3 of its own\n"
    assert asker.returncode == 3
    crashed = await kept.ask("die")
    assert await crashed.wait() == -signal.SIGSEGV


async def staying(kept: Kept) -> tuple[asyncio.subprocess.Process, list[psutil.Process]]:
    asker = await kept.ask("stay")
    assert asker.stdout is not None
    assert await asker.stdout.readline() == b"stays\n"
    family = kept.family()
    assert len(family) == 3  # its subreaper, itself, and what it started
    return asker, family


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


async def test_asked_to_leave_it_leaves_with_all_it_started(kept: Kept) -> None:
    asker, family = await staying(kept)
    asker.terminate()
    assert await asker.wait() == -signal.SIGTERM
    await wait_until(lambda: alive(family) == [], "all to end")


async def test_it_dies_with_whoever_asked(kept: Kept) -> None:
    asker, family = await staying(kept)
    asker.kill()
    await asker.wait()
    await wait_until(lambda: alive(family) == [], "all to end")


async def test_it_outlives_the_fork_server_but_not_whoever_asked(kept: Kept) -> None:
    asker, family = await staying(kept)
    kept.process.kill()
    kept.process.wait()
    assert asker.returncode is None and len(alive(family)) == 3
    asker.terminate()
    assert await asker.wait() == -signal.SIGTERM
    await wait_until(lambda: alive(family) == [], "all to end")


async def test_without_a_fork_server_the_program_runs_itself(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "turnout.worker.engine_fork_server", "prefer", str(tmp_path / "none")]
    run = await asyncio.create_subprocess_exec(
        *argv, "turnout.cli.warm_gang:main", "--version", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await run.communicate()
    assert run.returncode == 0 and out.decode().startswith("turnout ")
