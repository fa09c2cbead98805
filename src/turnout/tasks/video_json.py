"""Videos as HTTP shows them: what asks for one, and the video object, which webhooks send, too.

Bodies refuse unknown fields. Numbers may come as text, because the videos dialect sends forms.
"""

import json
from collections.abc import Sequence
from math import ceil
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

from turnout.fleet.model_rules import Model
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause, why_tasks_wait
from turnout.tasks.label_rules import MAX_TAGS, tidy
from turnout.tasks.signed_urls import UrlPurpose, UrlSigner
from turnout.tasks.task_rules import LoadedBytes, Stage, State, Task, TaskFailure
from turnout.tasks.video_rules import MAX_PROMPT_CHARS, MAX_SEED, lossy, seconds_of
from turnout.validation import Body

# Denoising is nearly all of the time, so it gets nearly all of the bar. No value falls as the stages pass.
_BEFORE_STEPS, _AFTER_STEPS = 5, 90
_FIXED = {Stage.LOADING: 1, Stage.ENCODING: 3, Stage.DECODING: 92, Stage.UPLOADING: 97}
_ALMOST = 99
# Of those that a model does not know.
_WORDS_NAMED, _WORD_CHARACTERS = 8, 40

OWN_ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
"""What a caller may call a task of its own."""


def _number(value: object) -> object:
    """True and False are numbers to Python, but not to a caller."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean.")  # noqa: TRY004 - pydantic reports ValueErrors only
    return value


def _guidance(value: object) -> object:
    """A form gives text: `3.5`, `3,4` or `[3, 4]`; a single number stands for a list of one."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                value = cast(object, json.loads(text))
            except (ValueError, RecursionError) as err:
                raise ValueError("must be one number or two, like 3.5 or 3,4.") from err
        else:
            value = text.split(",")
    if isinstance(value, list | tuple):
        return [_number(item) for item in cast("list[object]", value)]
    return [_number(value)]


def _names(value: object) -> object:
    """A form gives text: `a,b:0.8`."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Names = Annotated[list[Annotated[str, Field(max_length=100)]], BeforeValidator(_names), Field(max_length=8)]
Whole = Annotated[int, BeforeValidator(_number)]
Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Guidance = Annotated[
    list[Annotated[float, Field(allow_inf_nan=False)]],
    BeforeValidator(_guidance),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 50},
                {
                    "type": "array",
                    "items": {"type": "number", "minimum": 0, "maximum": 50},
                    "minItems": 1,
                    "maxItems": 2,
                },
            ]
        }
    ),
]


def _shown(default: Any = ..., **schema: int) -> Any:
    """A field whose bounds stand in the schema only: `tasks.video_rules.settle` is the one that checks them."""
    return Field(default, json_schema_extra=cast("dict[str, Any]", schema))


class ImageReference(Body):
    image_url: str = Field(description="An http(s) URL, or a data: URL with base64.")


class VideoRequest(Body):
    """What a caller asks for; None means the model's default."""

    prompt: str = _shown(minLength=1, maxLength=MAX_PROMPT_CHARS)
    model: str | None = Field(None, description="Absent: the first configured model that can do it.")
    negative_prompt: str | None = _shown(None, maxLength=MAX_PROMPT_CHARS)
    size: str | None = Field(None, description="WIDTHxHEIGHT.", examples=["832x480"])
    seconds: Real | None = Field(None, description="The clip's length; or give frames.")
    frames: Whole | None = Field(None, description="4n+1; or give seconds.")
    fps: Whole | None = _shown(None, minimum=1, maximum=60)
    steps: Whole | None = _shown(None, minimum=1)
    guidance: Guidance | None = Field(None, description="One number, or two: low noise, high noise.")
    shift: Real | None = None
    guided_share: Real | None = Field(
        None,
        description="The share of the steps, from the first, that have guidance: from 0.5 to 1. Fewer are faster, and less"
        " exact: `lossy` in the answer says by how much.",
    )
    step_cache: Real | None = Field(
        None,
        description="From 0 (off) to 0.2: steps that would change less than this are left out. `lossy` says more.",
    )
    fp8_attention: bool | None = Field(
        None,
        description="Attention in fp8 but for the first and last steps: faster and less exact. `lossy` says more.",
    )
    loras: Names | None = Field(
        None,
        description="Adapters of the model by name, or name:strength; [] for none.",
        examples=[["style:0.8"]],
    )
    seed: Whole | None = _shown(None, minimum=0, maximum=MAX_SEED)
    input_reference: ImageReference | None = Field(None, description="The first frame; in a form, a file.")
    image_url: str | None = Field(None, description="The first frame by URL (http, https or data).")
    enhance: bool = Field(
        False,
        description="The service's chat model rewrites the prompt first. If it cannot, the prompt stays: `enhance_error` says why.",
    )
    webhook_url: str | None = Field(None, description="Called once the video has ended.")
    task_id: str | None = Field(
        None,
        pattern=OWN_ID,
        description="Your own id of the task. It stands for the video's id everywhere, and is its Idempotency-Key.",
    )
    batch: str | None = Field(
        None,
        pattern=OWN_ID,
        description="A name of yours for videos that belong together, such as one prompt with several seeds.",
    )


class LabelsRequest(Body):
    """None keeps what there is."""

    favourite: bool | None = None
    tags: (
        Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=50), AfterValidator(tidy)]
        | None
    ) = Field(None, description=f"All of them, {MAX_TAGS} at most: each one word.")


class RemixRequest(Body):
    """None keeps what the source has."""

    prompt: str | None = _shown(None, minLength=1, maxLength=MAX_PROMPT_CHARS)
    seed: Whole | None = _shown(None, minimum=0, maximum=MAX_SEED)
    webhook_url: str | None = None


class VideoError(BaseModel):
    code: str
    message: str
    params: dict[str, str | int] = Field(
        default_factory=dict[str, str | int],
        description="The values in the message by name, for whoever says it in another language.",
    )


def error_of(failure: TaskFailure) -> VideoError:
    return VideoError(code=failure.code, message=failure.message, params=dict(failure.params))


class WaitingFor(BaseModel):
    """Why a task waits for its model: `words` for people, `state` and `cause` of the model for programs. `for_s` is how long
    the model has been in that state."""

    state: ModelState
    cause: StatusCause | None
    words: str
    for_s: int


class Video(BaseModel):
    """The dialect's video object first, then what Turnout adds."""

    id: str
    object: Literal["video"] = "video"
    model: str
    status: State
    progress: int = Field(ge=0, le=100)
    created_at: int
    completed_at: int | None
    expires_at: int | None
    prompt: str
    seconds: str
    size: str
    remixed_from_video_id: str | None
    error: VideoError | None
    stage: Stage | None
    step: int
    steps: int
    queue_position: int | None
    eta_s: float | None
    attempt: int
    failures: int
    priority: str
    started_at: int | None
    negative_prompt: str
    frames: int
    fps: int
    guidance: tuple[float, float]
    shift: float
    seed: int
    preview_url: str | None
    has_image: bool = Field(False, description="Whether it begins with a picture that came with the request.")
    loaded_bytes: int | None = Field(None, description="While loading: read of the model's weights so far.")
    load_bytes: int | None = Field(None, description="While loading: the weights in all.")
    guided_share: float = 1.0
    step_cache: float = 0.0
    fp8_attention: bool = False
    loras: list[str] = Field(
        default_factory=list, description="The adapters that it is made with, as name:strength."
    )
    lossy: dict[str, str] = Field(
        default_factory=dict, description="What is given up for speed, and the measured error of each."
    )
    waiting_for: WaitingFor | None = None
    task_id: str | None = Field(None, description="The caller's own id of it, if it gave one.")
    batch: str | None = Field(None, description="The caller's name for videos that belong together.")
    original_prompt: str | None = Field(
        None, description="What was asked for, if `prompt` is what a chat model made of it (`enhance`)."
    )
    enhance_error: VideoError | None = Field(
        None,
        description="Why the prompt was not rewritten, though `enhance` asked for it: it is the original.",
    )
    notice: str | None = Field(None, description="What the caller should know of its prompt.")
    unknown_words: list[str] = Field(
        default_factory=list,
        description="The words of its prompt that the model was not taught; the first few.",
    )
    favourite: bool = False
    tags: list[str] = Field([], description="Its owner's own words for finding it.")
    url: str | None = Field(
        None, description="Once completed: its file, without a key, until the URL expires or is revoked."
    )
    events_url: str | None = Field(
        None, description="The same for its events, as for a browser's EventSource."
    )


class VideoList(BaseModel):
    """`last_id` is what the next page comes `after`. A search reads so many videos at a time: of a page that has none, it is
    the last that was read."""

    object: Literal["list"] = "list"
    data: list[Video]
    first_id: str | None
    last_id: str | None
    has_more: bool


class VideoDeleted(BaseModel):
    id: str
    object: Literal["video.deleted"] = "video.deleted"
    deleted: bool = True


class TaskStarted(BaseModel):
    status: Literal["task_started"] = "task_started"
    task_id: str


def percent(stage: Stage, step: int, of: int) -> int:
    """How much of the bar is full at this point of an attempt."""
    if stage in _FIXED:
        return _FIXED[stage]
    done = min(max(step / of, 0.0), 1.0) if of > 0 else 0.0
    return _BEFORE_STEPS + int(done * (_AFTER_STEPS - _BEFORE_STEPS))


def progress(task: Task) -> int:
    """The dialect's percentage; it never falls within an attempt."""
    match task.state:
        case State.QUEUED:
            return 0
        case State.COMPLETED:
            return 100
        case State.IN_PROGRESS:
            return percent(task.stage or Stage.LOADING, task.step, task.of)
        case State.FAILED | State.CANCELLED:
            if task.of == 0:
                return _FIXED[Stage.LOADING] if task.attempt else 0
            return _ALMOST if task.step >= task.of else percent(Stage.DENOISING, task.step, task.of)


def _whole(at: float | None) -> int | None:
    return None if at is None else int(at)


def preview_path(task_id: str) -> str:
    return f"/v1/videos/{task_id}/content?variant=preview"


def waiting_for(model: Model, status: ModelStatus) -> WaitingFor | None:
    """None while the model is ready."""
    words = why_tasks_wait(status)
    if words is None:
        return None
    return WaitingFor(
        state=status.state,
        cause=status.cause,
        words=without_path(model, words),
        for_s=max(0, int(status.for_s)),
    )


def without_path(model: Model, words: str) -> str:
    """Users need not know how the machines are laid out: a model is named by its name, not by the path of its weights."""
    at_path = model.weights.startswith(("/", "~", "."))
    return words.replace(model.weights, model.name) if at_path else words


def video_of(
    task: Task,
    retention_s: float,
    *,
    position: int | None = None,
    eta_s: float | None = None,
    waiting: WaitingFor | None = None,
    urls: UrlSigner | None = None,
    now: float = 0.0,
    unknown_words: Sequence[str] = (),
) -> Video:
    """The video object as GET shows it; with `urls`, its signed URLs count from `now`."""
    spec = task.spec
    # A fresh attempt still carries the step that the last one reached, until it denoises itself.
    stepping = task.ended or task.stage not in (None, Stage.LOADING, Stage.ENCODING)
    return Video(
        id=task.id,
        model=task.model,
        status=task.state,
        progress=progress(task),
        created_at=int(task.created_at),
        completed_at=_whole(task.finished_at) if task.state is State.COMPLETED else None,
        expires_at=None if task.finished_at is None else int(task.finished_at + retention_s),
        prompt=spec.prompt,
        seconds=seconds_of(spec),
        size=f"{spec.width}x{spec.height}",
        remixed_from_video_id=task.remixed_from,
        error=None if task.failure is None else error_of(task.failure),
        stage=task.stage,
        step=task.step if stepping else 0,
        steps=spec.steps,
        queue_position=position,
        eta_s=None if eta_s is None else ceil(eta_s * 10) / 10,
        attempt=task.attempt,
        failures=task.failures,
        priority=task.priority,
        started_at=_whole(task.started_at),
        negative_prompt=spec.negative_prompt,
        frames=spec.frames,
        fps=spec.fps,
        guidance=spec.guidance,
        shift=spec.shift,
        seed=spec.seed,
        preview_url=None if task.preview is None else preview_path(task.id),
        has_image=spec.image is not None,
        **loaded_fields(task.loaded),
        guided_share=spec.guided_share,
        step_cache=spec.step_cache,
        fp8_attention=spec.fp8_attention,
        loras=[f"{use.name}:{use.strength:g}" for use in spec.loras],
        lossy=lossy(spec),
        waiting_for=waiting,
        task_id=task.name,
        batch=task.batch,
        original_prompt=task.original_prompt,
        enhance_error=None if task.rewrite_failure is None else error_of(task.rewrite_failure),
        **_remarks(task, unknown_words),
        url=urls.url(task.id, UrlPurpose.CONTENT, now) if urls and task.result else None,
        events_url=urls.url(task.id, UrlPurpose.EVENTS, now) if urls else None,
    )


def _remarks(task: Task, unknown: Sequence[str]) -> dict[str, Any]:
    said = list[str]()
    if task.rewrite_failure is not None:
        said.append(f"The prompt was not rewritten, and is used as it is: {task.rewrite_failure.message}")
    named = [word[:_WORD_CHARACTERS] for word in unknown[:_WORDS_NAMED]]
    if named:
        listed, verb = ", ".join(f"'{word}'" for word in named), "is" if len(named) == 1 else "are"
        said.append(f"{task.model} knows shapes, colours and motions; {listed} {verb} not among them.")
    return {"notice": " ".join(said) or None, "unknown_words": named}


def loaded_fields(loaded: LoadedBytes | None) -> dict[str, Any]:
    """As a video and its events tell how far the loading is."""
    return {} if loaded is None else {"loaded_bytes": loaded.bytes, "load_bytes": loaded.of}
