"""Whether this machine can run the configured models, and how the models of a running service stand."""

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from turnout.cli.doctor.finding import Finding
from turnout.cli.doctor.machine_checks import installed_version
from turnout.cli.doctor.service_checks import get
from turnout.cli.options import Common
from turnout.cli.server_answers import ModelSummaries
from turnout.engines.base import Parallel
from turnout.engines.servers.llamacpp import builtin_weights
from turnout.engines.video_engines import OURS, engine_path
from turnout.engines.wan.builtin import present_weights
from turnout.engines.wan.kernel_rules import FLASH3_MODULES, FP8_ATTENTION_NEEDS, attention_of
from turnout.engines.wan.model_fit import (
    Mode,
    StoredModel,
    offered_clips,
    read_model_files,
    size_of,
    usual_modes,
    verdict,
)
from turnout.errors import Misconfigured
from turnout.extras import LOCAL, RENDERS
from turnout.fleet.model_rules import WAN_ENGINE, EngineKind, Model, Runner, VideoPart
from turnout.fleet.status_rules import troubled
from turnout.run.config import Config
from turnout.tasks.video_rules import ImageUse, RequestedVideo, VideoRules, VideoSpec, settle
from turnout.worker.gpus import GpuFinding

_ELSEWHERE = (Runner.RAY, Runner.EXTERNAL, Runner.JOB)


def check_engines(config: Config) -> Iterator[Finding]:
    """Whether this machine has the engines that the models of its configuration need."""
    for kind in EngineKind:
        models = [model for model in config.models if model.engine is kind]
        if not models:
            continue
        what, named = f"{kind}", ", ".join(model.name for model in models)
        match kind:
            case EngineKind.VIDEO:
                if all(map(installed_version, ("torch", "diffusers", "av"))):
                    continue  # each model has a line of its own
                missing = RENDERS
            case EngineKind.LLAMACPP:
                missing = None if installed_version("xllamacpp") else LOCAL
            case EngineKind.VLLM:
                missing = (
                    None if shutil.which(config.worker.vllm) else "install vLLM, or set `vllm` to its program"
                )
            case _:
                programs = [model.server.command[0] for model in models if model.server.command]
                absent = [program for program in programs if not shutil.which(program)]
                missing = f"install {', '.join(absent)}" if absent else None
        if missing:
            yield Finding(what, False, f"not installed here; needed by {named}", missing)
            continue
        lost = [model.name for model in models if not _has_weights(model.weights)]
        if lost:
            yield Finding(
                what,
                False,
                f"no weights for {', '.join(lost)}",
                f"{LOCAL}, or mend the path",
            )
        else:
            yield Finding(what, True, f"runs {named}")


def check_video_models(config: Config, found: GpuFinding) -> Iterator[Finding]:
    """Whether this machine can hold each video model of its configuration, at which sizes, and how."""
    for model in config.video_models:
        what, video = model.name, model.gang
        if video.runner in _ELSEWHERE:
            yield Finding(what, None, f"its gangs run elsewhere (runner: {video.runner})")
            continue
        try:
            if video.video_engine != WAN_ENGINE:
                yield Finding(what, True, _other_engine(model, config.state_dir / "models"))
                continue
            weights = present_weights(model.weights, config.state_dir / "models")
            stored = read_model_files(weights) if weights else None
        except (Misconfigured, ValueError) as err:
            yield Finding(what, False, str(err), "`turnout models check` says more of a directory")
            continue
        if stored is None:
            yield Finding(what, True, "made when it is first used")
            continue
        parallel = Parallel(video.ulysses, video.cfg, video.fsdp)
        mode = Mode(parallel, model.gang_dtype, video.fp8, video.fp8_attention)
        if video.device != "cuda":
            said = f"{size_of(stored.weight_bytes(mode))} of weights on the CPU"
            yield Finding(what, True, f"{said}, {video.ranks} ranks" if video.ranks > 1 else said)
            continue
        sizes = [gpu.total_bytes for gpu in found.gpus]
        spec = _usual_spec(video)
        found_fit = verdict(stored, mode, offered_clips(stored.shape, video.rules), sizes, spec)
        fits, said = found_fit.fits, found_fit.words
        if fits:
            said = f"{said}; seconds: {spec.steps} steps as on H200s, on paper"
        others = [
            f"{other}" for other in usual_modes(stored.shape) if _fits(stored, other, video.rules, sizes)
        ]
        todo = f"would fit: {others[0]}" if others else "take a smaller model, or more GPUs"
        # A cluster's other machines may hold it: only what nobody here can change is wrong.
        yield Finding(what, fits or None, f"{mode}: {said}", "" if fits else todo)
        yield from _check_attention(model, found)


def _usual_spec(video: VideoPart) -> VideoSpec:
    """What a request gets that says nothing, adapters included."""
    image = "image" if video.rules.image is ImageUse.REQUIRED else None
    return settle(
        RequestedVideo("any", image=image),
        video.rules,
        ulysses=1,
        seed=0,
        loras=video.loras,
        usual_loras=video.usual_loras,
    )


def _check_attention(model: Model, found: GpuFinding) -> Iterator[Finding]:
    """Which kernel the model gets here."""
    if not found.gpus:
        return
    outlook = attention_of(
        found.capability,
        model.gang_dtype,
        flash3=any(importlib.util.find_spec(name) is not None for name in FLASH3_MODULES),
        triton=importlib.util.find_spec("triton") is not None,
    )
    what = f"{model.name} attention"
    if model.gang.fp8_attention and not outlook.fp8 and found.capability is not None:
        yield Finding(what, False, outlook.name, FP8_ATTENTION_NEEDS)
    else:
        yield Finding(what, None if outlook.missing else True, outlook.name, outlook.missing)


def _other_engine(model: Model, models: Path) -> str:
    """What is there of an engine that only its own code knows; raises Misconfigured when it is not installed."""
    engine = model.gang.video_engine
    module = engine_path(engine).partition(":")[0]
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise Misconfigured(f"the video engine {engine} cannot be imported: no module {module}")
    weights = present_weights(model.weights, models, engine in OURS)
    return f"rendered by {engine}, weights in {weights}"


def _fits(stored: StoredModel, mode: Mode, rules: VideoRules, sizes: Sequence[int]) -> bool:
    return verdict(stored, mode, offered_clips(stored.shape, rules), sizes).fits is True


def _has_weights(weights: str) -> bool:
    """Whether a path or built-in weights exist. Other names are for the engine to find."""
    if weights.startswith("builtin:"):
        return weights in builtin_weights()
    return not weights.startswith(("/", "./", "~")) or Path(weights).expanduser().exists()


def check_status(common: Common) -> Iterator[Finding]:
    """What a running service says of its models and of the workers that could run them."""
    try:
        server = common.server()
    except Misconfigured:
        return
    if server.api_key is None:
        return
    status, answer = get(ModelSummaries, server.url, "/v1/models", server.api_key)
    if status != 200 or answer is None or not answer.data:
        return
    broken = [f"{m.id}: {m.status}" for m in answer.data if m.state and troubled(m.state, m.cause)]
    if broken:
        todo = "`turnout workers list` and the worker's log say more"
        yield Finding("models", False, "; ".join(broken), todo)
    else:
        yield Finding("models", True, "; ".join(f"{m.id}: {m.status}" for m in answer.data))
