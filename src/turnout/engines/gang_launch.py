"""How a gang is started as a replica: its supervisor is a process like an engine server, but it takes its work from the
queue and listens nowhere. Pure."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnout.domain.serving import Gpu, ReplicaId, ServedModel
from turnout.engines.engine_servers import check_served
from turnout.engines.launch_plan import Launch, gpu_environ
from turnout.schemas.fleet_records import MODEL

DECLARED = (
    "TURNOUT_GANG_MODEL"  # how the model is declared: what the manager ordered, not what is configured here
)
_LAST_WORDS_S = 5.0


@dataclass(frozen=True, slots=True)
class GangProgram:
    """How this machine runs gangs: the configuration they read, where they say that they are ready, and how long they
    may take to put down what they do."""

    config_file: Path
    run_dir: Path
    drain_s: float


def plan(model: ServedModel, gpus: Sequence[Gpu], gang: ReplicaId, program: GangProgram) -> Launch:
    check_served(model)
    ready_file = program.run_dir / f"{gang}.ready"
    argv = (
        *(sys.executable, "-m", "turnout", "gang"),
        *("--config", str(program.config_file), "--model", model.name, "--gang", gang),
        *("--ready-file", str(ready_file)),
    )
    environ = {**gpu_environ(gpus), DECLARED: MODEL.dump_json(model).decode()}
    return Launch(argv, environ, grace_s=program.drain_s + _LAST_WORDS_S, ready_file=ready_file, drains=True)
