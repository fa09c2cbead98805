"""Where a rank stands in its gang, by the variables that its launcher set, and what it is started for.

torchrun places each process by itself (`LOCAL_RANK`). Others start one process a pod and say which of how many pods it is:
a LeaderWorkerSet by `LWS_*`, Kubeflow's PyTorchJob by `PET_*`. A process that nobody has placed is a gang of one pod.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from turnout.errors import Misconfigured
from turnout.gang.gang_api import ServiceAccess
from turnout.tasks.task_rules import GangId

_PORT = "29500"  # torchrun's own default


@dataclass(frozen=True, slots=True)
class RankDuties:
    """`service` is whom it renders for; only the process that leads knows it. `once`: leave after one task, with its verdict. With `idle_exit_s` the gang leaves when it had nothing to do for so long;
    it takes no task once it is `leave_after_s` old. A task that is not rendered `deadline_s` after it was taken fails. `tells`: nobody else reports of this gang, so it
    does itself."""

    model: str
    gang: GangId
    service: ServiceAccess | None = None
    once: bool = False
    idle_exit_s: float | None = None
    deadline_s: float | None = None
    tells: bool = False
    leave_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Which rank this process is, and where the gang meets: a file that all ranks see, `tcp://host:port` where
    rank 0 has bound the socket `listening` already, or None for `MASTER_ADDR` and `MASTER_PORT` as torchrun sets
    them."""

    rank: int
    ranks: int
    local_rank: int
    rendezvous: str | None = None
    listening: int | None = None


def rank_place_from(environ: Mapping[str, str], rendezvous: str | None = None) -> RankPlace:
    """The place that torchrun's variables describe."""
    rank = _number(environ, "RANK", 0)
    return RankPlace(
        rank, _number(environ, "WORLD_SIZE", 1), _number(environ, "LOCAL_RANK", rank), rendezvous
    )


@dataclass(frozen=True, slots=True)
class Pod:
    """One of the `pods` of a gang; each has `local_ranks` ranks. `meeting` is where they meet, None for a lone pod."""

    index: int
    pods: int
    local_ranks: int
    meeting: tuple[str, str] | None

    def variables(self, local_rank: int) -> dict[str, str]:
        """torchrun's, for one of its ranks."""
        placed = {
            "RANK": str(self.index * self.local_ranks + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.pods * self.local_ranks),
        }
        if self.meeting is None:
            # One machine: no need to guess which interface reaches the peers.
            return {**placed, "GLOO_SOCKET_IFNAME": "lo"}
        return {**placed, "MASTER_ADDR": self.meeting[0], "MASTER_PORT": self.meeting[1]}


def find_pod(environ: Mapping[str, str], ranks: int) -> Pod | None:
    """The pod that this process is to fill with ranks of a gang of so many; None when it was placed as one rank.
    Raises Misconfigured."""
    if "LOCAL_RANK" in environ:
        return None
    if "LWS_GROUP_SIZE" in environ:
        pods, index = _number(environ, "LWS_GROUP_SIZE", 1), _number(environ, "LWS_WORKER_INDEX", 0)
        address = environ.get("LWS_LEADER_ADDRESS", "")
    elif "PET_NODE_RANK" in environ:
        pods, index = _number(environ, "PET_NNODES", 1), _number(environ, "PET_NODE_RANK", 0)
        address = environ.get("MASTER_ADDR", "")
    elif "RANK" in environ:
        return None
    else:
        pods, index, address = 1, 0, ""
    if pods < 1 or ranks % pods or not 0 <= index < pods:
        raise Misconfigured(
            f"{ranks} ranks cannot be spread over {pods} pods, of which this is number {index}"
        )
    if pods == 1:
        return Pod(0, 1, ranks, None)
    if not address:
        raise Misconfigured(
            "the address of the gang's first pod is not known: LWS_LEADER_ADDRESS, MASTER_ADDR"
        )
    return Pod(index, pods, ranks // pods, (address, environ.get("MASTER_PORT", _PORT)))


def gang_name(environ: Mapping[str, str], host: str) -> GangId:
    """What the gang is called where nobody named it; the gateway adds what makes it unique."""
    run = environ.get("TORCHELASTIC_RUN_ID", "none")
    base = environ.get("POD_NAME") or (host if run == "none" else run)
    return GangId(re.sub(r"[^A-Za-z0-9.-]", "-", base).lstrip("-.")[:90] or "gang")


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    said = environ.get(name, str(default))
    if not said.isascii() or not said.isdigit():
        raise Misconfigured(f"{name} is a number, not {said[:50]!r}")
    return int(said)
