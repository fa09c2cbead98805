"""The process group of a gang: how its ranks meet, and how rank 0 tells the others what to do."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

# A follower waits here for the next command; rank 0 sends one at least every few seconds, also when idle.
_CONTROL_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Seat:
    """Which rank this process is, and where the gang meets: a file that all ranks see, or None for
    `MASTER_ADDR` and `MASTER_PORT` as torchrun sets them."""

    rank: int
    ranks: int
    local_rank: int
    rendezvous: str | None = None


def seat_from(environ: Mapping[str, str], rendezvous: str | None = None) -> Seat:
    """The seat that torchrun's variables describe; a lone process sits alone."""
    rank = int(environ.get("RANK", "0"))
    return Seat(rank, int(environ.get("WORLD_SIZE", "1")), int(environ.get("LOCAL_RANK", rank)), rendezvous)


class Group:
    """Formed by `form`. `tell` is rank 0's, `hear` the others'; both are collective."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    @classmethod
    def form(cls, seat: Seat, device: str) -> "Group":
        """Waits for all ranks. Imports torch, so it takes seconds the first time."""
        import torch
        import torch.distributed as dist

        torch.set_grad_enabled(False)
        if device == "cuda":
            torch.cuda.set_device(seat.local_rank)
        else:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // seat.ranks))
        if seat.ranks > 1:
            cast("Any", dist).init_process_group(
                backend="cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
                init_method=f"file://{seat.rendezvous}" if seat.rendezvous else "env://",
                rank=seat.rank,
                world_size=seat.ranks,
                timeout=_CONTROL_TIMEOUT,
            )
        return cls(seat)

    def tell(self, command: object) -> None:
        self._broadcast([command])

    def hear(self) -> object:
        box: list[object] = [None]
        self._broadcast(box)
        return box[0]

    def _broadcast(self, box: list[object]) -> None:
        if self.seat.ranks > 1:
            import torch
            import torch.distributed as dist

            cast("Any", dist).broadcast_object_list(box, src=0, device=torch.device("cpu"))
