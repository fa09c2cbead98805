"""The engine servers that a worker can run: how each is started, which arguments and which paths are allowed.

Pure, and free of heavy imports: gateways check registrations with it, workers compute launches with it.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from turnout.engines.servers import command, llamacpp_launch, vllm
from turnout.engines.servers.launch_plan import (
    Flag,
    Launch,
    Program,
    check_flags,
    check_weights,
    gpu_environ,
)
from turnout.errors import InvalidRequest
from turnout.fleet.machine_rules import Gpu
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.video_model_rules import DTYPES, check_video

__all__ = [
    "KEYED",
    "Launch",
    "Program",
    "Programs",
    "check_arguments",
    "check_served",
    "plan_launch",
    "relay_paths",
]


_LLAMACPP = Program((sys.executable, "-m", "turnout.engines.servers.llamacpp"))
_VLLM = Program(("vllm", "serve"))


@dataclass(frozen=True, slots=True)
class Programs:
    """How this machine runs each engine. vLLM may have a Python environment of its own; `cpus` counts processors."""

    llamacpp: Program = _LLAMACPP
    vllm: Program = _VLLM
    cpus: int = 1


# Engines that can be made to require a key.
KEYED = frozenset({EngineKind.VLLM, EngineKind.LLAMACPP})

# The arguments that an engine takes, and those that a model's own fields set.
_ARGUMENTS: Mapping[EngineKind, tuple[Sequence[Flag], Mapping[str, str]]] = {
    EngineKind.VLLM: (vllm.FLAGS, vllm.FIELDS),
    EngineKind.LLAMACPP: (llamacpp_launch.FLAGS, llamacpp_launch.FIELDS),
}

_PATHS: Mapping[EngineKind, frozenset[str]] = {
    EngineKind.VLLM: vllm.PATHS,
    EngineKind.LLAMACPP: llamacpp_launch.PATHS,
    EngineKind.COMMAND: command.PATHS,
}


def plan_launch(
    model: Model,
    gpus: Sequence[Gpu],
    port: int,
    programs: Programs,
    key: str | None = None,
) -> Launch:
    """How a replica of `model` is started on these GPUs (none: on the CPU alone). It listens on `port` of
    loopback. Only KEYED engines take a `key`."""
    check_served(model)
    match model.engine:
        case EngineKind.VLLM:
            launch = vllm.plan(model, gpus, port, programs.vllm, key)
        case EngineKind.LLAMACPP:
            launch = llamacpp_launch.plan(model, len(gpus), programs.cpus, port, programs.llamacpp, key)
        case EngineKind.COMMAND:
            launch = command.plan(model, port)
        case EngineKind.VIDEO:
            raise InvalidRequest("wan is rendered by gangs, not by an engine server", param="engine")
    return replace(launch, environ={**gpu_environ(gpus), **launch.environ})


def check_arguments(engine: EngineKind, arguments: Sequence[str]) -> None:
    """Raises InvalidRequest for an argument that is not on the engine's allow list."""
    allowed, fields = _ARGUMENTS.get(engine, ((), {}))
    check_flags(arguments, allowed, fields)


def check_served(model: Model) -> None:
    """Raises InvalidRequest for a model that could not be started, or not safely."""
    check_arguments(model.engine, model.server.arguments)
    if model.engine is EngineKind.COMMAND:
        command.check_command(model.server.command)
    if model.weights or model.engine is not EngineKind.COMMAND:
        check_weights(model.weights)
    if model.engine is EngineKind.VIDEO:
        _check_wan(model)
    if not 0 <= model.scaling.min_replicas <= model.scaling.max_replicas or model.scaling.max_replicas < 1:
        raise InvalidRequest("needs 0 <= min_replicas <= max_replicas and max_replicas >= 1", "min_replicas")
    for name, value in (
        ("name", model.name),
        ("dtype", model.dtype),
        ("quantization", model.server.quantization),
    ):
        if value is not None and (not value or value.startswith("-") or not value.isprintable()):
            raise InvalidRequest(f"{value[:80]!r} is not a {name}", param=name)
    if model.server.command and model.engine is not EngineKind.COMMAND:
        raise InvalidRequest("only a command engine takes a command", param="command")


def _check_wan(model: Model) -> None:
    if model.video is None:
        raise InvalidRequest("a wan model needs a family, or rules", param="family")
    check_video(model.video)
    if model.dtype is not None and model.dtype not in DTYPES:
        raise InvalidRequest(f"dtype is one of {', '.join(DTYPES)}; not {model.dtype[:80]!r}", param="dtype")


def relay_paths(engine: EngineKind) -> frozenset[str]:
    """The paths that may be relayed to such an engine; all take POST."""
    return _PATHS.get(engine, frozenset())
