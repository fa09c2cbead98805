"""What no gang could ever serve, or not safely. Pure."""

import re

from turnout.errors import InvalidRequest
from turnout.fleet.model_rules import WAN_ENGINE, Dtype, VideoPart
from turnout.tasks.video_rules import MIN_GUIDED_SHARE

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
DEVICES = ("cpu", "cuda")
_ENGINE = re.compile(r"[A-Za-z][\w.-]{0,199}(:[A-Za-z_]\w{0,99})?", re.ASCII)
_LORA = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_COUNTS = (
    *("heads", "head_dim", "spatial", "temporal", "patch", "fps"),
    *("max_pixels", "max_frames", "max_steps", "default_frames", "steps"),
)


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
