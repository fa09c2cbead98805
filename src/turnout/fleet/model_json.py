"""How models look to HTTP clients."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.fleet.capability_rules import capabilities, task_type
from turnout.fleet.serving import EngineKind, ServedModel
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause, describe
from turnout.fleet.video_model_rules import Runner
from turnout.tasks.video_json import without_path
from turnout.tasks.video_rules import ImageUse


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
    task_type: str = Field(description="T2V, I2V, TI2V, chat or embedding.")
    capabilities: tuple[str, ...] = Field(description="What can be asked of it.")


class ModelShown(ModelAnswer):
    """A video model. `sizes` empty means any size whose sides are multiples of `size_multiple`, up to `max_pixels`.
    `waiting` and `running` are its tasks now. A video takes about `seconds_per_work` for each step and pixel of its frames;
    null until one was made."""

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
    waiting: int
    running: int
    seconds_per_work: float | None
    video_engine: str
    runner: Runner
    loras: tuple[str, ...]
    usual_loras: tuple[str, ...]


class ServedShown(ModelAnswer):
    """A chat model."""

    kind: Literal["chat"] = "chat"
    concurrency: int
    max_model_len: int | None
    gpu_memory_utilization: float | None
    tensor_parallel_size: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelShown | ServedShown]


class ModelDeleted(BaseModel):
    id: str
    object: Literal["model"] = "model"
    deleted: bool = True


def shown_to_users(model: ServedModel, status: ModelStatus) -> ModelShown | ServedShown:
    """Without the path of its weights: users need not know how the machines are laid out."""
    answer = shown(model, status)
    answer.model_name = without_path(model, answer.model_name)
    answer.status = without_path(model, answer.status)
    return answer


def shown(model: ServedModel, status: ModelStatus) -> ModelShown | ServedShown:
    """As the registry and the manager know it: of its queue only the gateway does."""
    common = ModelAnswer(
        id=model.name,
        engine=model.engine,
        model_name=model.weights,
        status=describe(status),
        state=status.state,
        cause=status.cause,
        min_replicas=model.min_replicas,
        max_replicas=model.max_replicas,
        idle_s=model.idle_s,
        replicas=status.replicas,
        wake_s=status.wake_s,
        idle_left_s=status.idle_left_s,
        task_type=task_type(model),
        capabilities=capabilities(model),
    ).model_dump()
    if model.video is None:
        return ServedShown(
            **common,
            concurrency=model.concurrency,
            max_model_len=model.max_model_len,
            gpu_memory_utilization=model.gpu_memory_utilization,
            tensor_parallel_size=model.tensor_parallel_size,
        )
    video, rules = model.video, model.video.rules
    return ModelShown(
        **common,
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
            guided_share=rules.guided_share,
            step_cache=rules.step_cache,
        ),
        ranks=video.ranks,
        ulysses=video.ulysses,
        cfg=video.cfg,
        fsdp=video.fsdp,
        device=video.device,
        fp8=video.fp8,
        waiting=0,
        running=0,
        seconds_per_work=None,
        video_engine=video.video_engine,
        # What a model does not say, the manager tells: it knows whether the service runs on Ray.
        runner=video.run_by(Runner.RAY if status.cause is StatusCause.RUN_BY_RAY else Runner.WORKER),
        loras=tuple(lora.name for lora in video.loras),
        usual_loras=video.usual_loras,
    )
