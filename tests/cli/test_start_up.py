"""What must start on a machine without the heavy libraries."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

LIGHT = """
import sys
from importlib import import_module
for name in ("torch", "diffusers", "transformers", "numpy", "av", "ray", "safetensors", "xllamacpp"):
    sys.modules[name] = None  # importing it fails
from turnout.cli.main import MODULES
for name in MODULES.values():
    import_module(f"turnout.cli.{name}")
from turnout.cli.doctor_command import foresee
from turnout.run.config import load
foresee(load({}, {}).config)
import turnout.gateway.app, turnout.tasks.housekeeping, turnout.run.run_up
import turnout.run.run_worker, turnout.gang.supervisor, turnout.store.outbound, turnout.tasks.webhooks
"""


def test_gateway_manager_worker_and_cli_start_without_the_engine() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        (("worker", "--join", "http://127.0.0.1:9", "--token", "t"), {"redis", "obstore", "fastapi"}),
        (("up",), {"fastapi", "prometheus_client"}),
    ],
    ids=["worker", "up"],
)
def test_a_part_starts_without_the_libraries_of_the_others(
    command: tuple[str, ...], left_out: set[str], tmp_path: Path
) -> None:
    """Each second of imports is paid at every start, and its memory as long as the part runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = "--listen-port" if command[0] == "worker" else "--port"
        argv = [*command, port, str(taken.getsockname()[1])]
        environ = {**os.environ, "TURNOUT_STATE_DIR": str(tmp_path / "state")}
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "turnout", *argv],
            capture_output=True,
            text=True,
            check=False,
            env=environ,
        )
    assert "cannot listen" in done.stderr, done.stderr[-2000:]
    imported = {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line
    }
    assert "turnout.run.listening" in imported
    assert not imported & left_out
