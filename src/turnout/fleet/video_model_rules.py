"""A video model: what it can make, and how the ranks of a gang share the work. Pure.

It is declared as the video part of a served model (`serving.ServedModel.video`); `Model` is the whole of what a gang
must know, read off such a declaration.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from turnout.errors import InvalidRequest
from turnout.tasks.video_rules import MIN_GUIDED_SHARE, Lora, VideoRules

Dtype = Literal["float32", "bfloat16"]
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
DEVICES = ("cpu", "cuda")
WAN_ENGINE = "wan"
_ENGINE = re.compile(r"[A-Za-z][\w.-]{0,199}(:[A-Za-z_]\w{0,99})?", re.ASCII)
_LORA = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_COUNTS = (
    *("heads", "spatial", "temporal", "patch", "fps"),
    *("max_pixels", "max_frames", "max_steps", "default_frames", "steps"),
)


class Runner(StrEnum):
    """Who starts a model's gangs. The manager places those of workers alone: of the others it neither places nor refuses
    any. `EXTERNAL` are ranks that somebody else starts (torchrun, a LeaderWorkerSet); `JOB` is one Kubernetes job for each
    task."""

    WORKER = "worker"
    RAY = "ray"
    EXTERNAL = "external"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class VideoPart:
    """A gang has `ulysses × cfg` ranks: `ulysses` splits the token sequence, `cfg` (1 or 2) runs the two branches
    of guidance side by side, `fsdp` shards the weights over all ranks. `fp8` computes the large products less exactly.
    `video_engine` is what renders: a name that is installed on the machine, or an import path `module:Class`. `runner`
    None: workers, or Ray where the service runs on Ray. Requests may name any of `loras`, and get `usual_loras` when they
    name none; `loras_apart` keeps them apart from the weights."""

    rules: VideoRules
    ulysses: int = 1
    cfg: int = 1
    fsdp: bool = False
    device: str = "cpu"
    fp8: bool = False
    video_engine: str = WAN_ENGINE
    runner: Runner | None = None
    loras: tuple[Lora, ...] = ()
    usual_loras: tuple[str, ...] = ()
    loras_apart: bool = False

    @property
    def ranks(self) -> int:
        return self.ulysses * self.cfg

    @property
    def runs_named_code(self) -> bool:
        """Whether the model's declaration itself says which code runs, rather than what was installed."""
        return ":" in self.video_engine

    def run_by(self, default: Runner) -> Runner:
        return self.runner or default


@dataclass(frozen=True, slots=True)
class Model:
    """What gangs, and whoever launches them, must know of a model. `weights` is a directory, or `builtin:NAME` for what
    ships with the package; the other fields are those of its declaration."""

    name: str
    weights: str
    rules: VideoRules
    ulysses: int = 1
    cfg: int = 1
    fsdp: bool = False
    device: str = "cpu"
    dtype: Dtype = "float32"
    min_replicas: int = 0
    max_replicas: int = 1
    idle_s: float = 300.0
    fp8: bool = False
    video_engine: str = WAN_ENGINE
    loras: tuple[Lora, ...] = ()
    usual_loras: tuple[str, ...] = ()
    loras_apart: bool = False
    load_timeout_s: float = 600.0

    @property
    def ranks(self) -> int:
        return self.ulysses * self.cfg


def check_video(video: VideoPart) -> None:
    """Refuses what no gang could ever serve."""
    for name in _COUNTS:
        if getattr(video.rules, name) < 1:
            raise InvalidRequest(f"rules: {name} must be at least 1", "rules", "invalid_value")
    if video.ulysses < 1 or video.rules.heads % video.ulysses:
        raise InvalidRequest(f"{video.rules.heads} heads cannot be split {video.ulysses} ways", "ulysses")
    if video.cfg not in (1, 2):
        raise InvalidRequest(f"cfg is 1 or 2, not {video.cfg}", "cfg")
    if not MIN_GUIDED_SHARE <= video.rules.guided_share <= 1:
        raise InvalidRequest(f"rules: guided_share is from {MIN_GUIDED_SHARE} to 1", "rules", "invalid_value")
    if _ENGINE.fullmatch(video.video_engine) is None:
        raise InvalidRequest(
            "video_engine is an installed name or an import path module:Class", "video_engine"
        )
    _check_loras(video)
    if video.fp8 and video.fsdp:
        raise InvalidRequest("fp8 and fsdp exclude each other: shards are of the exact weights", "fp8")
    if video.device not in DEVICES:
        raise InvalidRequest(f"device is one of {', '.join(DEVICES)}; not {video.device[:80]!r}", "device")


def _check_loras(video: VideoPart) -> None:
    if video.loras and video.video_engine != WAN_ENGINE:
        raise InvalidRequest("loras are for the wan engine", "loras")
    for lora in video.loras:
        if _LORA.fullmatch(lora.name) is None:
            raise InvalidRequest(f"{lora.name[:80]!r} is not a name of an adapter", "loras")
        if bool(lora.weights) == bool(lora.high or lora.low):
            raise InvalidRequest(
                f"loras.{lora.name}: give weights for both experts, or high and low", "loras"
            )
        if any(path.startswith("-") or not path.isprintable() for path in lora.paths):
            raise InvalidRequest(f"loras.{lora.name}: that is no path", "loras")
        if lora.steps is not None and not 1 <= lora.steps <= video.rules.max_steps:
            raise InvalidRequest(f"loras.{lora.name}: steps are from 1 to {video.rules.max_steps}", "loras")
    for name in video.usual_loras:
        if name.partition(":")[0] not in {lora.name for lora in video.loras}:
            raise InvalidRequest(f"usual_loras: {name[:80]!r} is not among the loras", "usual_loras")
