"""Join codes as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.fleet.join_code_rules import JOIN_CODE_S, MAX_JOIN_CODE_S
from turnout.validation import Body


class JoinCodeRequest(Body):
    expires_in_s: int = Field(JOIN_CODE_S, ge=60, le=MAX_JOIN_CODE_S)
    url: str = Field(
        "",
        max_length=500,
        pattern=r"^(https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~/-]*)?)?$",
        description="How the caller reaches the service; it counts where `public_url` is not set, or is of the gateway's own machine.",
    )


class JoinCodeShown(BaseModel):
    """`code` works once, and is told here alone. `command` is typed on the machine that should join; `url` is the address in it."""

    object: Literal["worker.join_code"] = "worker.join_code"
    code: str
    expires_at: int
    url: str
    command: str
