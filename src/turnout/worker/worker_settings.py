"""Settings of a worker: what this machine runs, and with which programs."""

from dataclasses import dataclass
from pathlib import Path

from turnout.fleet.model_rules import EngineKind
from turnout.setting_types import Count


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`worker_memory_bytes` bounds what this machine's replicas may take together. `worker_environ` names variables that engines
    inherit besides those that are known to be of use; `*` stands for any letters. `gang_fork_server` keeps a process with the imports
    of gangs, where memory allows. `model_pulls` is whether admins pull models onto the gateway's machine; `turnout up` sets it, where
    the worker is beside it."""

    worker_memory_bytes: Count | None = None
    worker_engines: tuple[EngineKind, ...] | None = None
    worker_commands: tuple[str, ...] = ()
    worker_weights_dirs: tuple[Path, ...] | None = None
    worker_downloads: bool = True
    model_pulls: bool | None = None
    allow_registered_commands: bool = False
    vllm: str = "vllm"
    vllm_fork_server: bool = False
    gang_fork_server: bool = True
    worker_environ: tuple[str, ...] = ()
