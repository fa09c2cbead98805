"""What a worker and a gateway say to each other about engines that the gateway calls directly, past the worker's proxy.

The gateway holds one WebSocket to the worker, with the same token as for every request to its proxy. Each side always
sends its whole state: the worker the engines that may be called now, the gateway how many requests it has in flight at
each. `seen` acknowledges the announcement of that version: from then on the gateway sends no request to an engine that is
missing there, and the counts beside it are all that it still has in flight.
"""

from pydantic import BaseModel, ConfigDict, Field

from turnout.fleet.serving import ReplicaId

DIRECT_PATH = "/tally"
GATEWAY_HEADER = "x-turnout-gateway"
MAX_DIRECT_MESSAGE_BYTES = 256 * 1024
MAX_ENGINES = 256
_MAX_COUNT = 65_536


class DirectMessage(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class DirectEngine(DirectMessage):
    """One engine: where it listens (an IP address), the paths that may be called, and the key that it asks for."""

    replica: ReplicaId
    model: str
    host: str
    port: int = Field(ge=1, le=65_535)
    paths: tuple[str, ...]
    key: str | None = Field(default=None, repr=False, pattern=r"^[A-Za-z0-9_-]{1,200}$")


class Announcement(DirectMessage):
    """`network` names the worker's machine and network: only where it is the same, loopback is the same."""

    version: int
    network: str
    engines: tuple[DirectEngine, ...] = Field(max_length=MAX_ENGINES)


class InFlightCounts(DirectMessage):
    seen: int
    counts: dict[ReplicaId, int] = Field(max_length=_MAX_COUNT)

    def of(self, replica: ReplicaId) -> int:
        return max(0, min(self.counts.get(replica, 0), _MAX_COUNT))
