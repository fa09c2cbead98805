"""The process group of a gang: how its ranks find each other, and how rank 0 sends commands to the others."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from turnout.gang.rank_place import RankPlace

T = TypeVar("T")

_LEAVE = "turnout:leave"


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """`meeting_s` is for all ranks to import and meet; `collective_s` for one exchange between them. A follower waits for
    its next command in one; rank 0 sends one at least every few seconds, also when idle."""

    meeting_s: float
    collective_s: float


def _meeting(place: RankPlace, timeout_s: float) -> dict[str, Any]:
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
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=place.listening,
    )
    return {"store": store}


class Group:
    """Made by `form`. Rank 0 calls `send` and the others `receive`, all at the same time."""

    def __init__(self, place: RankPlace) -> None:
        self.place = place

    @classmethod
    def form(cls, place: RankPlace, device: str, timeouts: GroupTimeouts) -> "Group":
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
                timeout=timedelta(seconds=timeouts.collective_s),
                **_meeting(place, timeouts.meeting_s),
            )
        return cls(place)

    def introduce(self, own: T) -> list[T]:
        """What each rank says of itself, by number; all call it at the same time."""
        told: list[Any] = [own] * self.place.ranks
        if self.place.ranks > 1:
            import torch.distributed as dist

            cast("Any", dist).all_gather_object(told, own)
        return told

    def ask_to_leave(self) -> None:
        """Lets any rank ask rank 0 to take all away. Any thread may call it."""
        if (store := self._store()) is not None:
            store.set(_LEAVE, "1")

    def asked_to_leave(self) -> bool:
        store = self._store()
        return store is not None and bool(store.check([_LEAVE]))

    def _store(self) -> Any | None:
        if self.place.ranks == 1:
            return None
        import torch.distributed.distributed_c10d as c10d

        return cast("Any", c10d)._get_default_store()

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
