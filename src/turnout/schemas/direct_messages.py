"""What a worker and a gateway say to each other about engines that the gateway reaches straight, past the worker's door.

The gateway holds one WebSocket at the door, with the same token as every request there. Both sides always say all there
is, not what changed: the worker which engines may be reached now, the gateway how many of its own requests are under way
at each. `seen` acknowledges the announcement of that version: from then on the gateway sends nothing more to an engine
that is missing there, and the counts beside it are all that can still be under way.
"""

from pydantic import BaseModel, ConfigDict, Field

from turnout.domain.serving import ReplicaId

TALLY_PATH = "/tally"
GATEWAY_HEADER = "x-turnout-gateway"
MAX_TALLY_BYTES = 256 * 1024
MAX_ENGINES = 256
_MOST = 65_536


class DirectMessage(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class DirectEngine(DirectMessage):
    """One engine: where it listens (an IP address), which paths may be asked of it, and the key that it wants."""

    replica: ReplicaId
    model: str
    host: str
    port: int = Field(ge=1, le=65_535)
    paths: tuple[str, ...]
    key: str | None = Field(default=None, repr=False, pattern=r"^[A-Za-z0-9_-]{1,200}$")


class Announcement(DirectMessage):
    """`network` names the machine and its network: a loopback address means something only to those who have the same."""

    version: int
    network: str
    engines: tuple[DirectEngine, ...] = Field(max_length=MAX_ENGINES)


class Counts(DirectMessage):
    seen: int
    counts: dict[ReplicaId, int] = Field(max_length=_MOST)

    def of(self, replica: ReplicaId) -> int:
        return max(0, min(self.counts.get(replica, 0), _MOST))
