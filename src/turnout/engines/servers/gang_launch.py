"""How a gang is started as a replica. Its supervisor is a process like an engine server, but it takes tasks from the
queue and has no port. Pure."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnout.engines.servers.engine_servers import check_served
from turnout.engines.servers.launch_plan import Launch, gpu_environ
from turnout.fleet.fleet_records import MODEL
from turnout.fleet.machine_rules import Gpu
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import ReplicaId

# The model as the manager ordered it, in JSON; the machine's own configuration may differ.
DECLARED = "TURNOUT_GANG_MODEL"
SERVICE_FILE = "TURNOUT_GANG_SERVICE_FILE"
_EXIT_S = 5.0


@dataclass(frozen=True, slots=True)
class GangProgram:
    """How this machine runs gangs: the configuration they read, the folder of their own files, and how long they may
    take to drain. `fork_server` is where one listens that has their imports, if any."""

    config_file: Path
    run_dir: Path
    drain_s: float
    fork_server: Path | None = None


def service_file(run_dir: Path, gang: str) -> Path:
    """How the gang reaches its service; the worker writes it before it starts the gang."""
    return run_dir / f"{gang}.service.json"


def _program(fork_server: Path | None) -> tuple[str, ...]:
    if fork_server is None:
        return (sys.executable, "-m", "turnout")
    asks = ("-m", "turnout.worker.engine_fork_server", "prefer")
    return (sys.executable, *asks, str(fork_server), "turnout.cli.warm_gang:main")


def plan(model: Model, gpus: Sequence[Gpu], gang: ReplicaId, program: GangProgram) -> Launch:
    check_served(model)
    ready_file, alive_file = program.run_dir / f"{gang}.ready", program.run_dir / f"{gang}.alive"
    access_file = service_file(program.run_dir, gang)
    argv = (
        *_program(program.fork_server),
        "gang",
        *("--config", str(program.config_file), "--model", model.name, "--gang", gang),
        *("--ready-file", str(ready_file), "--alive-file", str(alive_file)),
    )
    environ = {
        **gpu_environ(gpus),
        DECLARED: MODEL.dump(model).decode(),
        SERVICE_FILE: str(access_file),
    }
    grace_s = program.drain_s + _EXIT_S
    return Launch(
        argv,
        environ,
        grace_s=grace_s,
        ready_file=ready_file,
        alive_file=alive_file,
        access_file=access_file,
        drains=True,
    )
