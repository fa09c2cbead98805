"""The server's answers as the CLI reads them: the types of `schemas`, open to what a newer server adds.

Owns no connection and prints nothing. It imports pydantic, so commands import it only when they run."""

from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
from httpx_sse import EventSource
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from turnout.errors import TurnoutError
from turnout.fleet.status_rules import ModelState, StatusCause
from turnout.tasks.task_rules import TERMINAL, Stage, State
from turnout.tasks.video_json import Video

AnswerT = TypeVar("AnswerT", bound=BaseModel)


def read(kind: type[AnswerT], content: object) -> AnswerT:
    try:
        return kind.model_validate(content)
    except ValidationError as err:
        problem = err.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise TurnoutError(
            f"the server's answer is not what this version of turnout knows ({where}: {problem['msg']})"
        ) from err


def _keep_unknown(value: object, known: ValidatorFunctionWrapHandler) -> object:
    """A newer server may have more states: those show as they are."""
    try:
        return known(value)
    except ValidationError:
        if isinstance(value, str):
            return value
        raise


def _drop_unknown(value: object, known: ValidatorFunctionWrapHandler) -> object:
    """What only adds to an answer, and is of a newer server, is not shown."""
    try:
        return known(value)
    except ValidationError:
        return None


class VideoAnswer(Video):
    """Fields that this version does not know are kept for --json."""

    model_config = ConfigDict(extra="allow")

    _open = field_validator("status", "stage", mode="wrap")(_keep_unknown)
    _readable = field_validator("waiting_for", mode="wrap")(_drop_unknown)

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", warnings=False)  # a status that is not one of ours is no problem


class VideoPage(BaseModel):
    data: list[VideoAnswer]
    has_more: bool = False


class VideoEvent(BaseModel):
    """One event of a task. `id` is what to resume after."""

    id: str = ""
    type: str = ""
    stage: str | None = None
    step: int = 0
    steps: int = 0
    progress: int = 0
    eta_s: float | None = None
    loaded_bytes: int | None = None
    load_bytes: int | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        return self.type.removeprefix("video.")


def read_events(response: httpx.Response) -> Iterator[VideoEvent]:
    """The events of a task's stream. Data that does not fit is skipped."""
    for sent in EventSource(response).iter_sse():
        try:
            event = VideoEvent.model_validate_json(sent.data)
        except ValidationError:
            continue
        yield event.model_copy(update={"id": sent.id or event.id, "type": event.type or sent.event})


def after(video: VideoAnswer, event: VideoEvent) -> VideoAnswer:
    """The video after `event`. An end changes nothing here: the server is asked how the task ended."""
    match event.name:
        case "in_progress":
            change = {
                "status": State.IN_PROGRESS,
                "stage": Stage.LOADING,
                "step": 0,
                "progress": event.progress,
            }
        case "progress":
            change = {
                "status": State.IN_PROGRESS,
                "stage": event.stage or video.stage,
                "step": event.step,
                "steps": event.steps or video.steps,
                "progress": event.progress or video.progress,
                "eta_s": event.eta_s,
                "loaded_bytes": event.loaded_bytes,
                "load_bytes": event.load_bytes,
            }
        case "requeued":
            return video.model_copy(update={"status": State.QUEUED, "stage": None, "eta_s": None})
        case _:
            return video
    return video.model_copy(update={**change, "queue_position": None})


class ErrorDetail(BaseModel):
    """Engines write errors too, and less strictly than Turnout."""

    message: str = ""
    param: str | None = None
    code: str | int | None = None


class ServerError(BaseModel):
    error: ErrorDetail | str | None = None

    def as_error(
        self, kind: type[TurnoutError], default: str, retry_after_s: float | None = None
    ) -> TurnoutError:
        """An error of our own tree; `default` is the message when the server gave none."""
        detail = self.error or ErrorDetail()
        if isinstance(detail, str):
            return kind(detail, retry_after_s=retry_after_s)
        code = None if detail.code is None else str(detail.code)
        return kind(detail.message or default, detail.param, code, retry_after_s)


class ModelSummary(BaseModel):
    """What every model has, whatever its kind."""

    id: str
    kind: str
    engine: str
    status: str
    state: ModelState | None = None  # an older server does not say
    cause: StatusCause | None = None
    version_of: str | None = None
    share: float = 0.0

    _open = field_validator("state", "cause", mode="wrap")(_keep_unknown)


class ModelSummaries(BaseModel):
    data: list[ModelSummary]
