"""Dead records, as operators see them."""

from typing import Literal

from pydantic import BaseModel


class DeadRecordShown(BaseModel):
    """`content` is there when one is looked at: at most 64 KiB, bytes that are no text escaped."""

    object: Literal["dead_record"] = "dead_record"
    kind: str
    name: str
    content: str | None = None


class DeadRecordList(BaseModel):
    object: Literal["list"] = "list"
    data: list[DeadRecordShown]


class DeadRecordDropped(BaseModel):
    object: Literal["dead_record.dropped"] = "dead_record.dropped"
    kind: str
    name: str


class DeadTaskRetried(BaseModel):
    """The task that renders the same again."""

    object: Literal["dead_record.retried"] = "dead_record.retried"
    name: str
    video: str
