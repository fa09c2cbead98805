"""Share links, and what whoever has one sees."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tasks.share_rules import Share
from turnout.validation import Body


class VideoShareRequest(Body):
    expires_in_s: int = Field(86_400, ge=60, le=30 * 86_400)


class ShareShown(BaseModel):
    """`token` is there only in the answer that made the link; the page shows the video at `/#/share/TOKEN`."""

    id: str
    object: Literal["video.share"] = "video.share"
    expires_at: int
    token: str | None = None


class ShareList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ShareShown]


class SharedVideo(BaseModel):
    object: Literal["video.shared"] = "video.shared"
    prompt: str
    size: str
    seconds: str
    expires_at: int


def share_of(share: Share, token: str | None = None) -> ShareShown:
    return ShareShown(id=share.id, expires_at=int(share.expires_at), token=token)
