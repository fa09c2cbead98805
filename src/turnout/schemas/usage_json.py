"""Usage as HTTP clients see it."""

from datetime import date
from typing import Literal

from pydantic import BaseModel

from turnout.domain.usage import UsageRow


class UsageShown(BaseModel):
    object: Literal["usage"] = "usage"
    day: str
    tenant: str
    model: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    uncounted_requests: int
    videos: int
    video_seconds: float
    render_seconds: float


class UsageList(BaseModel):
    object: Literal["list"] = "list"
    start: date
    end: date
    data: list[UsageShown]


def usage_of(row: UsageRow) -> UsageShown:
    used = row.used
    return UsageShown(
        day=row.day,
        tenant=row.tenant,
        model=row.model,
        requests=used.requests,
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        uncounted_requests=used.uncounted,
        videos=used.videos,
        video_seconds=used.video_ms / 1000,
        render_seconds=used.render_ms / 1000,
    )
