"""A wan model as it is declared, in a file or over HTTP: flat fields beside those that all models have, a family that
fills in its rules, and needs that follow from its ranks."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from turnout.domain.errors import InvalidRequest
from turnout.domain.families import FAMILIES
from turnout.domain.serving import Needs, ServedModel
from turnout.domain.video import VideoRules
from turnout.domain.video_model import VideoPart, check_video

VIDEO_FIELDS = frozenset(f.name for f in fields(VideoPart)) | {"family"}
_RULE_FIELDS = {f.name for f in fields(VideoRules)}
_PART = TypeAdapter(VideoPart)
# What the libraries and a small model take on a CPU: two ranks of the tiny model were measured at 0.7 GB together.
_RANK_BYTES = 2**30


def wan_model(model: ServedModel, video: Mapping[str, Any]) -> ServedModel:
    """The model with its video part. Raises InvalidRequest."""
    part = _video_part(video)
    return replace(model, video=part, needs=_needs(part, model.needs), concurrency=1)


def _video_part(given: Mapping[str, Any]) -> VideoPart:
    family = given.get("family")
    if family is not None and family not in FAMILIES:
        raise InvalidRequest(
            f"unknown family {str(family)[:80]!r}; known: {', '.join(FAMILIES)}", "family", "invalid_value"
        )
    overrides: object = given.get("rules") or {}
    if not isinstance(overrides, Mapping):
        raise InvalidRequest("rules is a mapping of names to values", "rules", "invalid_value")
    rules: dict[str, Any] = {str(name): value for name, value in overrides.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for name in rules.keys() - _RULE_FIELDS:
        raise InvalidRequest(
            f"rules: unknown setting {name[:80]!r}; known: {', '.join(sorted(_RULE_FIELDS))}", "rules"
        )
    if family is None and "heads" not in rules:
        raise InvalidRequest("a wan model needs a family, or rules that say its heads", "family")
    base = {name: getattr(FAMILIES[family], name) for name in _RULE_FIELDS} if family else {}
    split = {name: value for name, value in given.items() if name not in ("family", "rules")}
    try:
        part = _PART.validate_python({**split, "rules": {**base, **rules}})
    except ValidationError as err:
        problem = err.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InvalidRequest(f"{where}: {problem['msg']}", where.partition(".")[0], "invalid_value") from err
    check_video(part)
    return part


def _needs(video: VideoPart, needs: Needs) -> Needs:
    """One GPU for each rank; a whole one unless `gpu_memory_bytes` says less."""
    gpus = video.ranks if video.device == "cuda" else 0
    if needs.gpus not in (0, gpus):
        raise InvalidRequest(f"its {video.ranks} ranks on {video.device} take {gpus} GPUs", "gpus")
    return replace(needs, gpus=gpus, memory_bytes=needs.memory_bytes or video.ranks * _RANK_BYTES)
