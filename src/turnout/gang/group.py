"""The process group of a gang: how its ranks find each other, and how rank 0 sends commands to the others."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

# A follower waits here for the next command; rank 0 sends one at least every few seconds, also when idle.
_CONTROL_TIMEOUT = timedelta(minutes=30)
_MEETING_TIMEOUT = timedelta(minutes=5)  # for all ranks to import, on machines that may be busy


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
    """The place that torchrun's variables describe; a lone process sits alone."""
    rank = int(environ.get("RANK", "0"))
    return RankPlace(
        rank, int(environ.get("WORLD_SIZE", "1")), int(environ.get("LOCAL_RANK", rank)), rendezvous
    )


def _meeting(place: RankPlace) -> dict[str, Any]:
    """How torch's `init_process_group` is told where the ranks meet."""
    if place.rendezvous is None:
        return {"init_method": "env://"}
    if not place.rendezvous.startswith("tcp://"):
        return {"init_method": f"file://{place.rendezvous}"}
    import torch.distributed as dist

    host, _, port = place.rendezvous.removeprefix("tcp://").rpartition(":")
    # Rank 0 brings a bound socket, so no other program can have taken the port in the meantime.
    store = cast("Any", dist).TCPStore(
        host,
        int(port),
        world_size=place.ranks,
        is_master=place.rank == 0,
        timeout=_MEETING_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=place.listening,
    )
    return {"store": store}


class Group:
    """Made by `form`. Rank 0 calls `send` and the others `receive`, all at the same time."""

    def __init__(self, place: RankPlace) -> None:
        self.place = place

    @classmethod
    def form(cls, place: RankPlace, device: str) -> "Group":
        """Waits for all ranks. Imports torch, so it takes seconds the first time."""
        import torch
        import torch.distributed as dist

        torch.set_grad_enabled(False)
        if device == "cuda":
            torch.cuda.set_device(place.local_rank)
        else:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // place.ranks))
        if place.ranks > 1:
            cast("Any", dist).init_process_group(
                backend="cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
                rank=place.rank,
                world_size=place.ranks,
                timeout=_CONTROL_TIMEOUT,
                **_meeting(place),
            )
        return cls(place)

    def send(self, command: object) -> None:
        self._broadcast([command])

    def receive(self) -> object:
        box: list[object] = [None]
        self._broadcast(box)
        return box[0]

    def _broadcast(self, box: list[object]) -> None:
        if self.place.ranks > 1:
            import torch
            import torch.distributed as dist

            cast("Any", dist).broadcast_object_list(box, src=0, device=torch.device("cpu"))
