"""How models look to HTTP clients."""

from typing import Literal

from pydantic import BaseModel

from turnout.domain.model_status import ModelState, ModelStatus, StatusCause, describe
from turnout.domain.serving import EngineKind, ServedModel
from turnout.domain.video import ImageUse
from turnout.domain.video_model import VideoPart


class ModelDefaults(BaseModel):
    size: str
    frames: int
    fps: int
    steps: int
    guidance: tuple[float, float]
    shift: float
    negative_prompt: str


class ModelShown(BaseModel):
    """A video model; `status` says in words how it stands, `state` and `cause` the same for programs. `sizes` empty means any size whose sides are multiples of
    `size_multiple`, up to `max_pixels`."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["turnout"] = "turnout"
    kind: Literal["video"] = "video"
    engine: EngineKind
    model_name: str
    status: str
    state: ModelState
    cause: StatusCause | None = None
    min_replicas: int
    max_replicas: int
    idle_s: float
    image: ImageUse
    sizes: tuple[str, ...]
    size_multiple: int
    frame_multiple: int
    max_pixels: int
    max_frames: int
    max_steps: int
    defaults: ModelDefaults
    ranks: int
    ulysses: int
    cfg: int
    fsdp: bool
    device: str


class ServedShown(BaseModel):
    """A chat model; `status` says in words how it stands, `state` and `cause` the same for programs."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["turnout"] = "turnout"
    kind: Literal["chat"] = "chat"
    engine: EngineKind
    model_name: str
    status: str
    state: ModelState
    cause: StatusCause | None = None
    min_replicas: int
    max_replicas: int
    idle_s: float
    concurrency: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelShown | ServedShown]


class ModelDeleted(BaseModel):
    id: str
    object: Literal["model"] = "model"
    deleted: bool = True


def shown(model: ServedModel, status: ModelStatus) -> ModelShown | ServedShown:
    if model.video is not None:
        return _video_of(model, model.video, status)
    return ServedShown(
        id=model.name,
        engine=model.engine,
        model_name=model.weights,
        status=describe(status),
        state=status.state,
        cause=status.cause,
        min_replicas=model.min_replicas,
        max_replicas=model.max_replicas,
        idle_s=model.idle_s,
        concurrency=model.concurrency,
    )


def _video_of(model: ServedModel, video: VideoPart, status: ModelStatus) -> ModelShown:
    rules = video.rules
    return ModelShown(
        id=model.name,
        engine=model.engine,
        model_name=model.weights,
        status=describe(status),
        state=status.state,
        cause=status.cause,
        min_replicas=model.min_replicas,
        max_replicas=model.max_replicas,
        idle_s=model.idle_s,
        image=rules.image,
        sizes=rules.sizes,
        size_multiple=rules.multiple,
        frame_multiple=rules.temporal,
        max_pixels=rules.max_pixels,
        max_frames=rules.max_frames,
        max_steps=rules.max_steps,
        defaults=ModelDefaults(
            size=rules.default_size,
            frames=rules.default_frames,
            fps=rules.fps,
            steps=rules.steps,
            guidance=rules.guidance,
            shift=rules.shift,
            negative_prompt=rules.negative_prompt,
        ),
        ranks=video.ranks,
        ulysses=video.ulysses,
        cfg=video.cfg,
        fsdp=video.fsdp,
        device=video.device,
    )
