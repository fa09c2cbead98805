"""A video task as a client sees it: what the server's JSON says, typed, and how an event changes the picture. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class VideoView:
    """The figures a person wants to see; `raw` is the whole object as the server sent it."""

    id: str
    status: str
    model: str = ""
    prompt: str = ""
    stage: str | None = None
    step: int = 0
    steps: int = 0
    progress: float = 0.0
    eta_s: float | None = None
    queue_position: int | None = None
    seed: int | None = None
    created_at: float | None = None
    error: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class VideoEvent:
    """One line of a task's story. `id` is what to resume after."""

    id: str
    type: str
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.type.removeprefix("video.")

    @property
    def reason(self) -> str | None:
        return text(self.data.get("reason")) or text(self.data.get("message"))


def video_of(data: Mapping[str, Any]) -> VideoView:
    """Missing or odd fields are left out rather than refused: an older or newer server still shows."""
    error = mapping(data.get("error"))
    return VideoView(
        id=text(data.get("id")) or "?",
        status=text(data.get("status")) or "unknown",
        model=text(data.get("model")) or "",
        prompt=text(data.get("prompt")) or "",
        stage=text(data.get("stage")),
        step=whole(data.get("step")) or 0,
        steps=whole(data.get("steps")) or 0,
        progress=number(data.get("progress")) or 0.0,
        eta_s=number(data.get("eta_s")),
        queue_position=whole(data.get("queue_position")),
        seed=whole(data.get("seed")),
        created_at=number(data.get("created_at")),
        error=text(error.get("message")) or text(error.get("code")),
        raw=data,
    )


def after(video: VideoView, event: VideoEvent) -> VideoView:
    """The picture after `event`. How a task ended is asked of the server, so ends change nothing here."""
    match event.name:
        case "in_progress":
            return replace(
                video, status="in_progress", stage="loading", step=0, progress=0.0, queue_position=None
            )
        case "progress":
            return replace(
                video,
                status="in_progress",
                stage=text(event.data.get("stage")) or video.stage,
                step=whole(event.data.get("step")) or 0,
                steps=whole(event.data.get("steps")) or video.steps,
                progress=number(event.data.get("progress")) or video.progress,
                eta_s=number(event.data.get("eta_s")),
                queue_position=None,
            )
        case "requeued":
            return replace(video, status="queued", stage=None, eta_s=None)
        case _:
            return video


def mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else dict[str, Any]()


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
