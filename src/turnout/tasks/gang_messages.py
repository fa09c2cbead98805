"""What a gang and a gateway say to each other. `docs/worker-protocol.md` explains it for other languages.

A gang says what happened, never where: keys of objects, times and who it is are the gateway's to know.
"""

from typing import Annotated, Literal

from pydantic import Field

from turnout.fleet.gang_rules import RankReport
from turnout.tasks.task_rules import GangId, LoadedBytes, Stage, State, TaskId
from turnout.tasks.video_rules import VideoSpec
from turnout.validation import PeerMessage

GANG_TOKEN = "tg-"
"""How every token of a gang begins."""
MAX_CLAIM_WAIT_S = 30.0
PIECE_BYTES = 8 * 2**20
MAX_OBJECT_BYTES = 2 * 2**30
_MAX_EVENTS = 16
_STEP = Field(ge=0, le=100_000)
_WORDS = Field(max_length=500)


class GangOpening(PeerMessage):
    """A gang that no worker runs. `name` is a hint for people; the gateway makes it unique."""

    model: str = Field(max_length=100)
    name: str = Field(default="gang", pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,99}$")


class OpenedGang(PeerMessage):
    gang: GangId
    token: str


class Claiming(PeerMessage):
    """`loading`: its model is not loaded yet. The answer is held open for `wait_s` at most, until there is a task. `process` is made
    up by each process that claims for the gang: what an earlier one held is given back, and counts as a failed attempt."""

    process: str = Field(default="", pattern="^[A-Za-z0-9-]{0,64}$")
    loading: bool = False
    wait_s: float = Field(default=0.0, ge=0, le=MAX_CLAIM_WAIT_S)


class ExpectedTold(PeerMessage):
    """How long the task should take, by those that the model made before: a gang that tells `eta_s` begins with it. `loading_s` is
    what a model that is not loaded yet takes beforehand."""

    loading_s: float = 0.0
    encode_s: float
    guided_step_s: float
    step_s: float
    finish_s: float


class ClaimedTask(PeerMessage):
    """`token` is for calls about this attempt. `checkpoint`: there is one to go on from. The lease must be renewed, by any
    report, several times in `lease_s`. `expected` is None for the first video of a model. With a `mark` the clip says in its frames
    and its metadata that it is generated; it is the name of who made it."""

    id: TaskId
    attempt: int
    token: str
    spec: VideoSpec
    lease_s: float
    checkpoint: bool = False
    traceparent: str | None = None
    expected: ExpectedTold | None = None
    mark: str | None = Field(default=None, max_length=200)


class ClaimAnswer(PeerMessage):
    task: ClaimedTask | None


class ProgressTold(PeerMessage):
    kind: Literal["progress"] = "progress"
    stage: Stage
    step: Annotated[int, _STEP]
    of: Annotated[int, _STEP]
    eta_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    loaded: LoadedBytes | None = None


class PreviewTold(PeerMessage):
    """`preview-{step}.webp` was uploaded."""

    kind: Literal["preview"] = "preview"
    step: Annotated[int, _STEP]


class CheckpointTold(PeerMessage):
    """`checkpoint-{step}.safetensors` was uploaded."""

    kind: Literal["checkpoint"] = "checkpoint"
    step: Annotated[int, _STEP]


class InterruptionTold(PeerMessage):
    """The attempt ends without a result. `counts` is False when nobody is to blame."""

    kind: Literal["interrupted"] = "interrupted"
    reason: Annotated[str, _WORDS]
    counts: bool = True


class FinishTold(PeerMessage):
    """`video.mp4`, `thumbnail.webp` and `spritesheet.jpg` were uploaded, of a single frame `picture.png`, too; `bytes` is the
    video's size."""

    kind: Literal["finished"] = "finished"
    bytes: int = Field(ge=1, le=MAX_OBJECT_BYTES)


class FailureTold(PeerMessage):
    """The engine refuses the task, and always will."""

    kind: Literal["failed"] = "failed"
    message: Annotated[str, _WORDS]


GangEvent = Annotated[
    ProgressTold | PreviewTold | CheckpointTold | InterruptionTold | FinishTold | FailureTold,
    Field(discriminator="kind"),
]


class TaskReport(PeerMessage):
    """What happened since the last one, in order; nothing: the attempt still lives. Each renews the lease."""

    events: tuple[GangEvent, ...] = Field(default=(), max_length=_MAX_EVENTS)


class ReportAnswer(PeerMessage):
    """`stale`: why the task is no longer this attempt's; then it must be dropped. None: all was written."""

    stale: str | None = None


class GivingBack(PeerMessage):
    """The gang holds nothing any more: what it held waits again. `counts`: it died by itself."""

    reason: Annotated[str, _WORDS]
    counts: bool = True


class GangDoor(PeerMessage):
    """`open` False: the gang gets no further task, and keeps what it holds. None: as it is."""

    open: bool | None = None


class GangHolding(PeerMessage):
    """How many tasks the gang holds."""

    held: int


class GangTold(PeerMessage):
    """A gang that no worker reports of tells of itself, every second or two."""

    slot: int = Field(default=0, ge=0, le=10_000)
    since: float
    formation: int = Field(default=0, ge=0)
    ranks: tuple[RankReport, ...] = Field(default=(), max_length=1024)
    ready_at: float | None = None
    trouble: Annotated[str, _WORDS] = ""


class Upload(PeerMessage):
    bytes: int = Field(ge=1, le=MAX_OBJECT_BYTES)


class UploadPlan(PeerMessage):
    """An object is sent in pieces of `piece_bytes`. `signed` has a URL for each where the object store takes them itself; any
    piece may be sent to the gateway instead."""

    piece_bytes: int
    content_type: str
    signed: tuple[str, ...] | None = None


class UploadDone(PeerMessage):
    """All pieces were sent; `sha256` is of the whole, in hex."""

    bytes: int = Field(ge=1, le=MAX_OBJECT_BYTES)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class AttemptOver(PeerMessage):
    """In which state the task is; None: it is gone."""

    state: State | None
