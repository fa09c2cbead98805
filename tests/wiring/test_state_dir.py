"""A start that cannot write says so in one line."""

import os
import resource
import subprocess
import sys
from pathlib import Path

from turnout.wiring.state_dir import make_private


def little_room() -> None:
    """As on a full disk, for this process alone: files may not grow past 64 KiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_up_says_in_one_line_that_the_disk_is_full(tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = subprocess.run(
        [sys.executable, "-m", "turnout", "up", "--state-dir", str(state), "--port", "0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=dict(os.environ),
        preexec_fn=little_room,
    )
    wanted = (
        f"error: {state} cannot be written: File too large; make room there, or give another --state-dir\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", wanted)
    assert list(state.iterdir()) == [], "nothing is left behind"


def test_a_directory_that_was_there_becomes_private(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    make_private(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_directory_for_everyone_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private(shared)
    assert shared.stat().st_mode & 0o7777 == 0o1777
