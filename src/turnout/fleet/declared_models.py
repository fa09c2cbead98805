"""Reads a declaration of a model (see `model_declaration`) into the model.

A video model's family fills in its rules. What is not said about GPUs and memory follows from how a replica is split.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from turnout.errors import InvalidRequest
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_declaration import DECLARED, VIDEO_FIELDS
from turnout.fleet.model_rules import (
    BUILTIN,
    BUILTIN_MODELS,
    WAN_ENGINE,
    EngineKind,
    Model,
    Needs,
    Scaling,
    ServerPart,
    Version,
    VideoPart,
)
from turnout.fleet.video_model_rules import check_video
from turnout.tasks.video_rules import Lora, VideoRules
from turnout.validation import given_twice, unknown_parameter, validated


def _field(name: str) -> Any:
    declared = DECLARED[name]
    default: Any = ... if declared.default is MISSING else declared.default
    return declared.type, Field(default, **declared.metadata["declared"])


ModelDeclaration: type[BaseModel] = create_model(
    "ModelDeclaration", __config__=ConfigDict(extra="forbid"), **{name: _field(name) for name in DECLARED}
)
_DECLARATION = TypeAdapter(ModelDeclaration)
_VIDEO = TypeAdapter(VideoPart)
_NEEDS = {field.name for field in fields(Needs)}
_RULES = {field.name for field in fields(VideoRules)}
_LORA = {field.name for field in fields(Lora)} - {"name"}
# What the libraries and a small model take on a CPU: two ranks of the tiny model were measured at 0.7 GB together.
_RANK_BYTES = 2**30


def read_model(declared: object) -> Model:
    """The model that a mapping declares. Raises InvalidRequest. Whether it can be started safely is not checked here."""
    declaration = validated(_DECLARATION, _flat(declared))
    said = vars(declaration)
    model = Model(
        said["alias"],
        said["engine"],
        said["model_name"],
        Needs(**{**_part(Needs, said), "gpus": said["gpus"] or 0}),
        Scaling(**_part(Scaling, said)),
        ServerPart(**_part(ServerPart, said)),
        Version(**_part(Version, said)),
        said["concurrency"],
        said["dtype"],
    )
    _check_builtin(model, said["video_engine"])
    if model.engine is EngineKind.VIDEO:
        video = _video_part(said)
        return replace(
            model,
            video=video,
            needs=_gang_needs(video, model.needs),
            concurrency=1,
        )
    for name in sorted(VIDEO_FIELDS & declaration.model_fields_set):
        if said[name] is not None:
            raise InvalidRequest(f"{name} is for video models.", name, "unsupported")
    if model.engine is EngineKind.LLAMACPP and model.server.vision:
        raise InvalidRequest(
            "Our llama.cpp server loads no projector: use the command engine.", "vision", "unsupported"
        )
    if model.engine is EngineKind.VLLM and said["gpus"] is None:
        return replace(model, needs=replace(model.needs, gpus=model.server.tensor_parallel_size))
    return model


def _check_builtin(model: Model, video_engine: str) -> None:
    """An engine of one's own may have builtin models of its own."""
    known = () if ":" in video_engine else BUILTIN_MODELS.get(model.engine, ())
    name = model.weights.removeprefix(BUILTIN)
    if known and name != model.weights and name not in known:
        raise InvalidRequest(
            f"there is no builtin model {name[:80]!r}; known: {', '.join(known)}",
            "model_name",
            "invalid_value",
        )


def _part(shape: Any, said: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: said[field.name] for field in fields(shape)}


def _flat(declared: object) -> object:
    """With `weights`, as files call the `model_name`, and what a replica takes in `needs`, as files group it."""
    if not isinstance(declared, Mapping):
        return declared
    values = dict(cast("Mapping[str, Any]", declared))
    grouped: object = values.pop("needs", None) or {}
    if not isinstance(grouped, Mapping):
        raise InvalidRequest("needs must be an object.", "needs", "invalid_type")
    needs = cast("Mapping[str, Any]", grouped)
    for name in needs.keys() - _NEEDS:
        raise unknown_parameter(f"needs.{str(name)[:80]}")
    named = {"model_name": values.pop("weights")} if "weights" in values else {}
    for name in {**named, **needs}.keys() & values.keys():
        raise given_twice(name)
    return {**values, **named, **needs}


def _video_part(said: Mapping[str, Any]) -> VideoPart:
    family: str | None = said["family"]
    rules: Mapping[str, Any] = said["rules"] or {}
    adapters: Mapping[str, object] = said["loras"] or {}
    if family is not None and family not in FAMILIES:
        raise InvalidRequest(
            f"unknown family {family!r}; known: {', '.join(FAMILIES)}", "family", "invalid_value"
        )
    for name in rules.keys() - _RULES:
        raise InvalidRequest(
            f"rules: unknown setting {name[:80]!r}; known: {', '.join(sorted(_RULES))}", "rules"
        )
    if family is None and "heads" not in rules and said["video_engine"] == WAN_ENGINE:
        raise InvalidRequest("a video model needs a family, or rules that say its heads", "family")
    # An engine of one's own may not know heads; one says that its ranks share no sequence.
    base = {name: getattr(FAMILIES[family], name) for name in _RULES} if family else {"heads": 1}
    loras = [{**_adapter(name, settings), "name": name} for name, settings in adapters.items()]
    try:
        video = _VIDEO.validate_python({**_part(VideoPart, said), "rules": {**base, **rules}, "loras": loras})
    except ValidationError as err:
        problem = err.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InvalidRequest(f"{where}: {problem['msg']}", where.partition(".")[0], "invalid_value") from err
    check_video(video)
    return video


def _adapter(name: str, said: object) -> Mapping[str, Any]:
    if isinstance(said, str):
        return {"weights": said}
    if not isinstance(said, Mapping):
        raise InvalidRequest(f"loras.{name[:80]}: a path, or a mapping of settings", "loras")
    settings = cast("Mapping[str, Any]", said)
    for setting in settings.keys() - _LORA:
        raise InvalidRequest(f"loras.{name[:80]}: unknown setting {str(setting)[:80]!r}", "loras")
    return settings


def _gang_needs(video: VideoPart, needs: Needs) -> Needs:
    """One GPU for each rank; a whole one unless `gpu_memory_bytes` says less."""
    gpus = video.ranks if video.device == "cuda" else 0
    if needs.gpus not in (0, gpus):
        raise InvalidRequest(f"its {video.ranks} ranks on {video.device} take {gpus} GPUs", "gpus")
    return replace(needs, gpus=gpus, memory_bytes=needs.memory_bytes or video.ranks * _RANK_BYTES)
