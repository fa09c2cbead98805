"""Pulls: models that are being fetched from a hub onto the machine of `turnout up`. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256

MAX_PULLS = 50
HUB_ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}$"


class PullState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OVER = frozenset((PullState.COMPLETED, PullState.FAILED, PullState.CANCELLED))


@dataclass(frozen=True, slots=True)
class ModelPull:
    """`name` is that of the catalogue, if it is in it. `bytes` of `of` are here; 0 of 0 until the hub has told. `reason` is why it
    failed, and `reason_code` the same for whoever says it in another language, where there is one."""

    id: str
    hub: str
    repo: str
    asked_at: float
    by: str
    name: str | None = None
    include: tuple[str, ...] = ()
    state: PullState = PullState.WAITING
    bytes: int = 0
    of: int = 0
    reason: str = ""
    reason_code: str = ""
    ended_at: float | None = None

    @property
    def over(self) -> bool:
        return self.state in OVER


def pull_id(hub: str, repo: str) -> str:
    """The same model from the same hub is pulled once: a second time goes on with it."""
    return f"pull_{sha256(f'{hub}/{repo}'.encode()).hexdigest()[:16]}"


def next_pull(pulls: list[ModelPull]) -> ModelPull | None:
    """One at a time: the one that was under way when a gateway died, or the first that waits."""
    due = [pull for pull in pulls if not pull.over]
    return min(due, key=lambda pull: (pull.state is not PullState.RUNNING, pull.asked_at), default=None)


@dataclass(frozen=True, slots=True)
class PullFailure:
    message: str
    code: str = ""


def ended(pull: ModelPull, failure: PullFailure | None, now: float) -> ModelPull:
    """As its process left."""
    if failure is None:
        return replace(
            pull, state=PullState.COMPLETED, bytes=pull.of, reason="", reason_code="", ended_at=now
        )
    return replace(
        pull, state=PullState.FAILED, reason=failure.message[:300], reason_code=failure.code, ended_at=now
    )
