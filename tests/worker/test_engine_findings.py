"""A worker says what its machine lacks, and why."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.machine_rules import Gpu, Machine, MachineFinding
from turnout.fleet.model_rules import EngineKind, Model, Needs, Runner, VideoPart
from turnout.fleet.placement_rules import could_run
from turnout.worker.engine_findings import machine_findings, missing_engines


def test_what_is_not_installed_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec

    def without_diffusers(name: str) -> ModuleSpec | None:
        return None if name == "diffusers" else there(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_diffusers)
    missing = missing_engines("no-such-program")
    assert missing == {
        EngineKind.VIDEO: "diffusers not installed: pip install 'turnout[local]', or 'turnout[cuda]' for GPUs",
        EngineKind.VLLM: "no program no-such-program: pip install vllm",
    }
    assert EngineKind.VLLM not in missing_engines(sys.executable)


def test_what_the_operator_does_not_allow_is_told_too_and_so_is_a_missing_gpu() -> None:
    missing = {EngineKind.VLLM: "no program vllm"}
    assert machine_findings(missing, frozenset({EngineKind.LLAMACPP}), "no driver") == (
        MachineFinding(EngineKind.VIDEO, "not allowed here (worker_engines)"),
        MachineFinding(EngineKind.VLLM, "no program vllm"),
        MachineFinding("gpus", "no driver"),
    )
    assert machine_findings({}, frozenset(EngineKind), "") == ()


def test_the_models_that_a_machine_could_run() -> None:
    machine = Machine((Gpu(0, 80, 80),), 100, 100, engines=frozenset({EngineKind.VLLM, EngineKind.VIDEO}))
    part = VideoPart(FAMILIES["wan-tiny-t2v"])
    models = [
        Model("fits", EngineKind.VLLM, "w", Needs(gpus=1, gpu_memory_bytes=80)),
        Model("too-large", EngineKind.VLLM, "w", Needs(gpus=1, gpu_memory_bytes=81)),
        Model("two-gpus", EngineKind.VLLM, "w", Needs(gpus=2, gpu_memory_bytes=1)),
        Model("no-engine", EngineKind.LLAMACPP, "w"),
        Model("clips", EngineKind.VIDEO, "w", video=part),
        Model("by-ray", EngineKind.VIDEO, "w", video=VideoPart(part.rules, runner=Runner.RAY)),
    ]
    assert could_run(models, machine) == ["clips", "fits"]
