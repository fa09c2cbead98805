"""How long a video would take, as HTTP asks for it and shows it."""

from math import ceil
from typing import Literal

from pydantic import BaseModel, Field, TypeAdapter

from turnout.tasks.estimate_rules import Estimate
from turnout.tasks.video_json import Real, VideoRequest, Whole
from turnout.validation import Body, validated

_REQUEST = TypeAdapter(VideoRequest)


class EstimateQuery(Body):
    """What would be asked for, as in a submission; what is absent is the model's default."""

    size: str | None = Field(None, description="WIDTHxHEIGHT.")
    seconds: Real | None = None
    frames: Whole | None = None
    fps: Whole | None = None
    steps: Whole | None = None
    guidance: str | None = Field(None, description="One number, or two: `3,4`.")
    guided_share: Real | None = None
    step_cache: Real | None = None
    fp8_attention: bool | None = None
    loras: str | None = Field(None, description="Names: `a,b:0.8`.")
    image: bool = Field(False, description="Whether it would begin with a picture.")

    def as_request(self) -> VideoRequest:
        """No estimate depends on the words."""
        return validated(_REQUEST, {"prompt": "any", **self.model_dump(exclude_none=True, exclude={"image"})})


class EstimateShown(BaseModel):
    """Seconds: `total_s` is `wait_s` for the videos before it, `wake_s` for its model, and `render_s`. All are null until the model
    has made a video. `seen`: it has made one of this kind; else `render_s` is scaled from others, and rougher. `before` counts
    the videos that wait or are being made."""

    object: Literal["estimate"] = "estimate"
    model: str
    before: int
    wait_s: float | None = None
    wake_s: float | None = None
    render_s: float | None = None
    total_s: float | None = None
    seen: bool = False


def shown(model: str, before: int, found: Estimate | None) -> EstimateShown:
    if found is None:
        return EstimateShown(model=model, before=before)
    return EstimateShown(
        model=model,
        before=before,
        wait_s=_rounded(found.wait_s),
        wake_s=_rounded(found.wake_s),
        render_s=_rounded(found.render_s),
        total_s=_rounded(found.total_s),
        seen=found.seen,
    )


def _rounded(seconds: float) -> float:
    return ceil(seconds * 10) / 10
