# pyright: reportUnknownMemberType=false
"""This rank among the others: who computes which half, and how all come to hold the same bytes.

Owns every collective of the engine except those inside a forward pass. With one rank there may be no process
group at all, and nothing here communicates.
"""

import hashlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from turnout.engines.base import CheckpointRefused, EngineError, Frames, Parallel, Unrenderable
from turnout.engines.sequence import SequenceShare

_REFUSALS: tuple[type[EngineError], ...] = (EngineError, Unrenderable, CheckpointRefused)
_GONE = -1
"""Status of a message that could not be made, for a reason that is no refusal."""
_PIECES = 4
"""Of attention between machines. Inside one, with NVLink, at most 4 % could be gained, and smaller kernels cost something."""


@dataclass(frozen=True, slots=True)
class RankLayout:
    rank: int
    parallel: Parallel
    mesh: DeviceMesh | None
    """Dimensions cfg and ulysses; None with one rank."""
    spans_machines: bool = False
    """Whether the ranks that share a sequence do."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def unconditional(self) -> bool:
        """Whether this rank computes the half without the prompt; only with CFG parallel."""
        return self.rank >= self.parallel.ulysses

    @property
    def sequence(self) -> SequenceShare:
        """This rank's part of the sequence."""
        if self.mesh is None or self.parallel.ulysses == 1:
            return SequenceShare()
        ranks = self.parallel.ulysses
        pieces = _PIECES if self.spans_machines else 1
        return SequenceShare(ranks, self.rank % ranks, self.mesh.get_group("ulysses"), pieces)

    def share(self, make: Callable[[], bytes]) -> bytes:
        """What `make` returns on rank 0, on every rank; a refusal there is raised on every rank.

        Without that, a bad image would leave the other ranks waiting in a broadcast until it times out.
        """
        if self.mesh is None:
            return make()
        if not self.leads:
            return _receive()
        try:
            data = make()
        except EngineError as err:
            _send(str(err).encode(), 1 + _REFUSALS.index(type(err)))
            raise
        except Exception as err:
            _send(repr(err).encode(), _GONE)
            raise
        _send(data, 0)
        return data

    def least(self, mine: int | None) -> int | None:
        """The smallest number of all ranks. None on all of them stays None. Collective."""
        if self.mesh is None or mine is None:
            return mine
        number = torch.tensor([mine], dtype=torch.int64)
        dist.all_reduce(number, op=dist.ReduceOp.MIN)
        return int(number)

    def pair(self, mine: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The halves with and without the prompt, from ranks that each computed one."""
        assert self.mesh is not None
        mine = mine.contiguous()
        halves = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(halves, mine, group=self.mesh.get_group("cfg"))
        return halves[0], halves[1]

    def stack_rows(self, mine: Frames, heights: Sequence[int]) -> Frames:
        """On rank 0 the same frames with the rows of all ranks, of so many each; on the others their own. Collective."""
        if not self.leads:
            if len(heights) > self.rank and heights[self.rank]:
                dist.send(torch.from_numpy(mine), dst=0)
            return mine
        parts = [mine]
        for rank, height in enumerate(heights[1:], start=1):
            if height:
                part = torch.empty((len(mine), height, *mine.shape[2:]), dtype=torch.uint8)
                dist.recv(part, src=rank)
                parts.append(part.numpy())
        return np.concatenate(parts, axis=1) if len(parts) > 1 else mine


def join_ranks(parallel: Parallel, device: torch.device) -> RankLayout:
    """Take this process's place in the default process group. Collective."""
    present = dist.get_world_size() if dist.is_initialized() else 1
    if present != parallel.ranks:
        raise ValueError(f"{parallel} needs {parallel.ranks} ranks, but the process group has {present}")
    if present == 1:
        return RankLayout(0, parallel, None)
    # Ulysses is the innermost dimension: it talks most, and neighbouring ranks sit on the same machine.
    mesh = init_device_mesh(device.type, (parallel.cfg, parallel.ulysses), mesh_dim_names=("cfg", "ulysses"))
    rank = dist.get_rank()
    first = rank - rank % parallel.ulysses
    spans = len(set(_machines()[first : first + parallel.ulysses])) > 1
    return RankLayout(rank, parallel, mesh, spans)


def _machines() -> list[int]:
    """A number for the host name of every rank. Collective."""
    name = hashlib.sha256(socket.gethostname().encode()).digest()
    mine = torch.tensor([int.from_bytes(name[:7])])
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return [int(number) for number in gathered]


def _send(data: bytes, status: int) -> None:
    dist.broadcast(torch.tensor([status, len(data)], dtype=torch.int64), src=0)
    if data:
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), src=0)


def _receive() -> bytes:
    head = torch.empty(2, dtype=torch.int64)
    dist.broadcast(head, src=0)
    status, length = (int(number) for number in head)
    body = torch.empty(length, dtype=torch.uint8)
    if length:
        dist.broadcast(body, src=0)
    data = body.numpy().tobytes()
    if status == _GONE:
        raise RuntimeError(f"rank 0 failed: {data.decode()}")
    if status > 0:
        raise _REFUSALS[status - 1](data.decode())
    return data
