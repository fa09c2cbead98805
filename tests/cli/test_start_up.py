"""What must start on a machine without the heavy libraries."""

import subprocess
import sys

LIGHT = """
import sys
for name in ("torch", "diffusers", "transformers", "numpy", "av", "ray"):
    sys.modules[name] = None  # importing it fails
import turnout.cli.main, turnout.gateway.app, turnout.manager.housekeeping, turnout.wiring, turnout.wiring.run_up
import turnout.wiring.run_worker, turnout.gang.supervisor, turnout.adapters.outbound, turnout.manager.webhooks
"""


def test_gateway_manager_worker_and_cli_start_without_the_engine() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
