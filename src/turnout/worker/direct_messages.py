"""How a worker and a gateway on one machine agree on engines that the gateway calls directly, past the worker's proxy.

They meet at a Unix socket of the abstract namespace that is named after the worker's URL. Only processes of one network
namespace meet there, and for these loopback is the same; both check that the other runs as the same user. Messages are
lines of JSON, and each side always sends its whole state: the worker the engines that may be called now, the gateway how
many requests it has in flight at each. `seen` acknowledges the announcement of that version: from then on the gateway
sends no request to an engine that is missing there, and the counts beside it are all that it still has in flight.
"""

import hashlib
import os
import socket
import struct

from pydantic import BaseModel, ConfigDict, Field

from turnout.fleet.replica_rules import ReplicaId

MAX_DIRECT_MESSAGE_BYTES = 2**20
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_MAX_COUNT = 65_536


class DirectMessage(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


class DirectEngine(DirectMessage):
    """One engine: its port on loopback, the paths that may be called, and the key that it asks for."""

    replica: ReplicaId
    port: int = Field(ge=1, le=65_535)
    paths: tuple[str, ...]
    key: str | None = Field(default=None, repr=False, pattern=r"^[A-Za-z0-9_-]{1,200}$")


class Announcement(DirectMessage):
    version: int
    engines: tuple[DirectEngine, ...]


class InFlightCounts(DirectMessage):
    seen: int
    counts: dict[ReplicaId, int] = Field(max_length=_MAX_COUNT)

    def of(self, replica: ReplicaId) -> int:
        return max(0, min(self.counts.get(replica, 0), _MAX_COUNT))


def listen_for_gateways(url: str) -> socket.socket:
    """Raises OSError."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(_meeting_point(url))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def connect_to_worker(url: str) -> socket.socket | None:
    """None if the worker of that URL is not on this machine, or runs as another user. Never waits."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        connection.connect(_meeting_point(url))
        if is_same_user(connection):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def is_same_user(connection: socket.socket) -> bool:
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(told)
    return user == os.geteuid()


def _meeting_point(url: str) -> str:
    """Hashed, because such a name has at most 107 bytes."""
    return f"\0turnout-worker-{hashlib.sha256(url.encode()).hexdigest()}"
