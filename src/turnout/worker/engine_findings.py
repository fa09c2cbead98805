"""Why this machine cannot run an engine, and why it has no GPU: as `turnout doctor` would say it, for admins who are elsewhere."""

import importlib.util
import shutil

from turnout.extras import LOCAL, RENDERS
from turnout.fleet.machine_rules import MachineFinding
from turnout.fleet.model_rules import EngineKind

_MODULES = {
    EngineKind.LLAMACPP: (("xllamacpp",), LOCAL),
    EngineKind.VIDEO: (("torch", "diffusers"), RENDERS),
}


def missing_engines(vllm: str) -> dict[EngineKind, str]:
    """What is not installed, by engine; `vllm` is the program."""
    found: dict[EngineKind, str] = {}
    for kind, (modules, advice) in _MODULES.items():
        lacks = [name for name in modules if importlib.util.find_spec(name) is None]
        if lacks:
            found[kind] = f"{' and '.join(lacks)} not installed: {advice}"
    if shutil.which(vllm) is None:
        found[EngineKind.VLLM] = f"no program {vllm[:100]}: pip install vllm"
    return found


def machine_findings(
    missing: dict[EngineKind, str], allowed: frozenset[EngineKind], no_gpus: str
) -> tuple[MachineFinding, ...]:
    """`allowed` are the engines that this worker runs, `no_gpus` why it has no GPU. A command is only there if one was allowed."""
    kinds = [kind for kind in EngineKind if kind not in allowed and kind is not EngineKind.COMMAND]
    engines = [MachineFinding(kind, missing.get(kind, "not allowed here (worker_engines)")) for kind in kinds]
    return (*engines, *([MachineFinding("gpus", no_gpus)] if no_gpus else []))
