"""Small scenarios for tests of plans."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, Needs, Scaling, VideoPart
from turnout.plan.modes import PlanMode, loads, setup_of
from turnout.plan.outcome import Outcome
from turnout.plan.scenario import MachineKind, PlannedModel, Scenario, Timing, TrafficPart
from turnout.plan.simulation import simulate
from turnout.tasks.video_rules import VideoRules

GB = 10**9
_FAMILY = FAMILIES["wan2.2-ti2v-5b"]
RULES = VideoRules(**{name: getattr(_FAMILY, name) for name in VideoRules.__slots__})


def video(
    name: str = "wan", gpus: int = 1, load_s: float = 60.0, seconds: float = 30.0, **scaling: Any
) -> PlannedModel:
    needs = Needs(gpus, 0, GB)
    part = VideoPart(RULES, ulysses=gpus, device="cuda")
    served = Model(name, EngineKind.VIDEO, name, needs, Scaling(**scaling), concurrency=1, video=part)
    return PlannedModel(served, Timing(load_s=load_s, seconds=seconds))


def chat(name: str = "chat", gb: int = 60, load_s: float = 40.0, **scaling: Any) -> PlannedModel:
    needs = Needs(1, gb * GB, GB, GB)
    served = Model(name, EngineKind.VLLM, name, needs, Scaling(**scaling), concurrency=4)
    return PlannedModel(served, Timing(load_s=load_s, wake_s=3, prompt_s=0.2, tokens_per_s=50))


def scenario(
    models: list[PlannedModel], traffic: list[TrafficPart], machines: MachineKind | None = None, **more: Any
) -> Scenario:
    kind = machines or MachineKind(gpus=2, price_an_hour=4.0, max=3, boot_s=120, watts=700, idle_watts=100)
    named = {model.name: model for model in models}
    made = Scenario(named, tuple(traffic), {"m": kind}, {name: (name,) for name in named}, days=0.5)
    return replace(made, **more)


def run_mode(made: Scenario, mode: PlanMode = PlanMode.ZERO) -> Outcome:
    here = Path()
    return simulate(made, setup_of(made, mode, loads(made, here)), here)
