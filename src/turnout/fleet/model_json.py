"""How models look to HTTP clients."""

from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, Field

from turnout.fleet.capability_rules import capabilities, sees, task_type
from turnout.fleet.model_rules import EngineKind, Model, Runner
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause, describe
from turnout.tasks.video_json import without_path
from turnout.tasks.video_rules import ImageUse, PromptLanguage
from turnout.validation import Body


class ModelDefaults(BaseModel):
    size: str
    frames: int
    fps: int
    steps: int
    guidance: tuple[float, float]
    shift: float
    negative_prompt: str
    guided_share: float
    step_cache: float


class ModelAnswer(BaseModel):
    """What is told of every model: `status` says in words how it stands, `state` and `cause` the same for programs.
    `replicas` are ready. `wake_s` is how long it took to become ready the last time; `idle_left_s` when it leaves if nobody
    asks for it, null while it is busy or gone. `notice` comes with a registration: why no worker could run it now."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["turnout"] = "turnout"
    engine: EngineKind
    model_name: str
    status: str
    state: ModelState
    cause: StatusCause | None = None
    min_replicas: int
    max_replicas: int
    idle_s: float
    replicas: int
    wake_s: float | None
    idle_left_s: float | None
    notice: str | None = None
    version_of: str | None = Field(None, description="The model whose name it answers for as well.")
    share: float = Field(0.0, description="Its part of what is asked of that name.")
    task_type: str = Field(description="T2V, I2V, TI2V, chat or embedding.")
    capabilities: tuple[str, ...] = Field(description="What can be asked of it.")


class VideoModelShown(ModelAnswer):
    """A video model. `sizes` empty means any size whose sides are multiples of `size_multiple`, up to `max_pixels`.
    `waiting` and `running` are its tasks now. `prompt_model` is the chat model that rewrites prompts for it, if there is one, into
    `prompt_language` if that is not null."""

    kind: Literal["video"] = "video"
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
    fp8: bool
    fp8_attention: bool
    waiting: int = 0
    running: int = 0
    prompt_model: str | None = None
    prompt_language: PromptLanguage | None = None
    video_engine: str
    runner: Runner
    loras: tuple[str, ...]
    usual_loras: tuple[str, ...]


class ChatModelShown(ModelAnswer):
    """A chat model. `vision`: whether it takes pictures; null: only its engine knows."""

    kind: Literal["chat"] = "chat"
    concurrency: int
    max_model_len: int | None
    gpu_memory_utilization: float | None
    tensor_parallel_size: int
    vision: bool | None


AnyModelShown = VideoModelShown | ChatModelShown


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[AnyModelShown]


class VersionShareRequest(Body):
    share: float = Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Its part of what is asked of the model it is a version of.",
    )


class ModelDeleted(BaseModel):
    id: str
    object: Literal["model"] = "model"
    deleted: bool = True


def shown_to_users(model: Model, status: ModelStatus) -> AnyModelShown:
    """Without the path of its weights: users need not know how the machines are laid out."""
    answer = shown(model, status)
    answer.model_name = without_path(model, answer.model_name)
    answer.status = without_path(model, answer.status)
    return answer


def shown(model: Model, status: ModelStatus) -> AnyModelShown:
    """As the registry and the manager know it: of its queue only the gateway does."""
    common = {
        **asdict(model.scaling),
        **asdict(model.version),
        **asdict(status),
        "concurrency": model.concurrency,
        "id": model.name,
        "engine": model.engine,
        "model_name": model.weights,
        "status": describe(status),
        "task_type": task_type(model),
        "capabilities": capabilities(model),
    }
    if model.video is None:
        return ChatModelShown.model_validate({**common, **asdict(model.server), "vision": sees(model)})
    video, rules = model.video, asdict(model.video.rules)
    return VideoModelShown.model_validate(
        {
            **common,
            **rules,
            **asdict(video),
            "size_multiple": video.rules.multiple,
            "frame_multiple": video.rules.temporal,
            "defaults": {**rules, "size": video.rules.default_size, "frames": video.rules.default_frames},
            "ranks": video.ranks,
            # What a model does not say, the manager tells: it knows whether the service runs on Ray.
            "runner": video.run_by(Runner.RAY if status.cause is StatusCause.RUN_BY_RAY else Runner.WORKER),
            "loras": [lora.name for lora in video.loras],
        }
    )
