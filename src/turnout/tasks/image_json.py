"""Pictures as HTTP shows them, in OpenAI's dialect: a picture is a video of one frame."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tasks.video_json import Guidance, Names, Real, VideoRequest, Whole
from turnout.validation import Body

MAX_PICTURES = 8


class ImageRequest(Body):
    """None means the model's default. What the dialect has for one vendor's models alone is taken and does nothing."""

    prompt: str
    model: str | None = Field(None, description="A video model; absent: the first that can do it.")
    n: Whole = Field(1, ge=1, le=MAX_PICTURES, description="So many pictures, each with a seed of its own.")
    size: str | None = Field(None, description="WIDTHxHEIGHT, or auto.", examples=["832x480"])
    response_format: Literal["url", "b64_json"] | None = Field(
        None, description="Absent: both are in the answer."
    )
    output_format: Literal["png"] = "png"
    quality: str | None = Field(None, description="Does nothing: steps does.")
    style: str | None = Field(None, description="Does nothing.")
    background: Literal["auto", "opaque"] | None = None
    moderation: str | None = Field(None, description="Does nothing.")
    user: str | None = Field(None, description="Does nothing.")
    enhance: bool = Field(
        False,
        description="The service's chat model rewrites the prompt first: `revised_prompt` is what it became.",
    )
    negative_prompt: str | None = None
    steps: Whole | None = None
    guidance: Guidance | None = None
    shift: Real | None = None
    loras: Names | None = None
    seed: Whole | None = None


class ImageShown(BaseModel):
    """`video` is the task that made it: it is in the list, can be shared and costs as any other."""

    url: str | None = None
    b64_json: str | None = None
    revised_prompt: str | None = None
    video: str
    seed: int


class ImageList(BaseModel):
    created: int
    data: list[ImageShown]
    output_format: Literal["png"] = "png"
    size: str


_SAME = frozenset({"prompt", "model", "enhance", "negative_prompt", "steps", "guidance", "shift", "loras"})


def as_video(asked: ImageRequest, seed: int | None, batch: str | None) -> VideoRequest:
    """Of one frame."""
    fields = asked.model_dump(include=set(_SAME), exclude_none=True)
    size = None if asked.size == "auto" else asked.size
    return VideoRequest.model_validate({**fields, "size": size, "frames": 1, "seed": seed, "batch": batch})
