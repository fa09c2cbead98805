"""A start that cannot write says so in one line."""

import os
import resource
import subprocess
import sys
from pathlib import Path


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
