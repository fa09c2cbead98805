"""Folders of processes that were killed are removed; those of the living stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from turnout.processes.scratch import scratch_folder, sweep

HOLD = """
import sys
from pathlib import Path
from turnout.processes.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "left").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


def folders(base: Path) -> set[str]:
    return {str(path) for path in base.iterdir() if path.is_dir()}


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    base = tmp_path / "gangs"
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        killed, living = [str(one.stdout.readline().strip()) for one in holders if one.stdout]
        assert folders(base) == {killed, living}
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait(30)
        with scratch_folder(base) as own:
            assert folders(base) == {living, str(own)}
        assert folders(base) == {living}
        os.kill(holders[1].pid, signal.SIGKILL)
        holders[1].wait(30)
        sweep(base)
        assert folders(base) == set()
    finally:
        for one in holders:
            one.kill()
            one.communicate()
