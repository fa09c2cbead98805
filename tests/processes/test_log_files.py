"""Logs are bounded while they are written, and the process that writes them notices nothing."""

import errno
import os
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until

from turnout.processes import log_files
from turnout.processes.commands import LocalCommands
from turnout.processes.log_files import bound

KIB = 1024
TALKER = """
import sys
for n in range(40_000):
    print(f"line {n} " + "x" * 90, flush=n % 1000 == 0)
sys.stdout.flush()
print("done", flush=True)
sys.stdin.read() or __import__("signal").pause()
"""


async def test_a_talkative_engine_fills_no_disk_and_its_last_lines_are_shown(tmp_path: Path) -> None:
    child = await LocalCommands(tmp_path).start("engine", [sys.executable, "-c", TALKER], {})
    most = 0

    def finished() -> bool:
        nonlocal most
        bound(tmp_path, max_bytes=300 * KIB, max_file_bytes=100 * KIB)
        most = max(
            most, (tmp_path / "engine.log.1").stat().st_size if (tmp_path / "engine.log.1").exists() else 0
        )
        return child.log_tail(2000).endswith("done\n")

    await wait_until(finished, "the engine to say all it has to say: 4 MB", 120)
    bound(tmp_path, max_bytes=300 * KIB, max_file_bytes=100 * KIB)
    assert child.returncode is None, "it lives"
    assert 0 < most <= 100 * KIB
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 300 * KIB
    assert "line 39999" in child.log_tail(2000)
    assert (tmp_path / "engine.log.1").stat().st_mode & 0o077 == 0
    await child.stop(0)


def test_a_log_that_was_just_cut_still_has_a_tail(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))
    bound(tmp_path, max_bytes=10**6, max_file_bytes=1000)
    assert log.stat().st_size == 0
    with log.open("a") as file:
        file.write("newest\n")
    from turnout.processes.commands import tail

    assert tail(log, 100).endswith("line 999\nnewest\n")


def test_the_oldest_go_when_there_are_too_many_bytes_and_what_was_set_aside_first(tmp_path: Path) -> None:
    names = ["a.log", "b.log", "c.log", "a.log.1", "c.log.1"]
    for age, name in enumerate(names):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    (tmp_path / "notes.txt").write_bytes(b"x" * 10_000)  # not ours
    bound(tmp_path, max_bytes=250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.log", "c.log", "notes.txt"]


def test_a_full_disk_empties_the_log_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_files, "_copy", full)
    log = tmp_path / "engine.log"
    log.write_bytes(b"x" * 5000)
    bound(tmp_path, max_bytes=10**6, max_file_bytes=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["engine.log"]
    assert log.stat().st_size == 0
