"""What must start on a machine without the heavy libraries."""

import subprocess
import sys

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
