"""Starts gangs of real ranks over gloo for tests, and shows what they left behind."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from turnout.engines.base import Frames

MAIN = Path(__file__).with_name("gang_main.py")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a gang left behind."""

    folder: Path
    ranks: int

    def reports(self, task: str) -> list[dict[str, Any]]:
        return [json.loads((self.folder / f"{task}.{rank}.json").read_text()) for rank in range(self.ranks)]

    def latents(self, task: str) -> list[Any]:
        from safetensors.torch import load_file

        return [
            load_file(self.folder / f"{task}.{rank}.safetensors")["latents"] for rank in range(self.ranks)
        ]

    def frames(self, task: str) -> Frames:
        """The clip that rank 0 decoded."""
        return np.load(self.folder / f"{task}.npy")

    def checkpoint(self, task: str) -> bytes:
        return (self.folder / f"{task}.checkpoint").read_bytes()


def run_gang(folder: Path, ranks: int, tasks: list[dict[str, Any]]) -> None:
    """Start the ranks, and wait for all of them."""
    job = folder / "job.json"
    job.write_text(
        json.dumps({"store": str(folder / "store"), "ranks": ranks, "out": str(folder), "tasks": tasks})
    )
    server = _fork_server()
    assert server.stdin and server.stdout
    server.stdin.write(f"{job}\n")
    server.stdin.flush()
    codes = json.loads(server.stdout.readline())
    logs = [folder / f"rank{rank}.log" for rank in range(ranks)]
    assert codes == [0] * ranks, "\n".join(log.read_text()[-3000:] for log in logs)


@functools.cache
def _fork_server() -> subprocess.Popen[str]:
    """Ends with us: then it reads the end of its input."""
    return subprocess.Popen(
        [sys.executable, str(MAIN)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
    )


def once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills once for all test processes of this run."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / name
    with FileLock(root / f"{name}.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            (folder / "done").touch()
    return folder
