# pyright: reportUnknownMemberType=false
"""One sequence over several ranks (Ulysses): each rank has some tokens of all heads, and for attention all tokens
of some heads. Owns the collectives inside a forward pass.

Over gloo on a CPU the result has the same bits as one rank's, in any number of pieces. The path over NCCL has not been run
yet, and so not its overlap either: it needs two GPUs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

import torch
import torch.distributed as dist

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Queries, keys and values [batch, tokens, heads, width] to an output of the queries' shape."""


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Under way. Its tensors are kept here, because a GPU sends and receives after the call has returned: they may be
    freed only when the stream that made them has waited."""

    work: dist.Work
    sent: torch.Tensor
    got: torch.Tensor
    device: torch.device


@dataclass(slots=True)
class SequenceShare:
    """This rank's part of the sequence. Attention divides its heads into `pieces`; `exchanged` counts what was sent since a
    forward pass began."""

    ranks: int = 1
    rank: int = 0
    group: dist.ProcessGroup | None = None
    pieces: int = 1
    exchanged: int = 0
    under_way: dict[int, AllToAll] = field(default_factory=dict[int, AllToAll])

    def mine(self, whole: torch.Tensor, dim: int) -> torch.Tensor:
        """This rank's tokens."""
        return whole if self.ranks == 1 else whole.chunk(self.ranks, dim)[self.rank]

    def whole(self, mine: torch.Tensor, dim: int) -> torch.Tensor:
        """All tokens, from ranks that each hold some. Collective."""
        if self.ranks == 1:
            return mine
        parts = self._staged(mine.contiguous())
        gathered = [torch.empty_like(parts) for _ in range(self.ranks)]
        dist.all_gather(gathered, parts, group=self.group)
        self.exchanged += 1
        return torch.cat(gathered, dim).to(mine.device)

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attend: Attend) -> torch.Tensor:
        """What my tokens see in all tokens: [my tokens, all heads, D], like `q`, `k` and `v`. Collective.

        A piece of my heads is computed while the next one comes and the last one goes back. Heads do not see each
        other, so pieces change no bits.
        """
        if self.ranks == 1:
            return attend(q[None], k[None], v[None])[0]
        tokens, heads, width = q.shape
        q, k, v = (each.view(tokens, self.ranks, heads // self.ranks, width) for each in (q, k, v))
        pieces = self._pieces(heads)
        packs = (
            torch.stack([each[:, :, piece].transpose(0, 1) for each in (q, k, v)], 1) for piece in pieces
        )
        coming, going = self._send(next(packs)), list[int]()
        for piece in pieces:
            packed = next(packs, None)  # while `coming` is under way
            here = self._received(coming).transpose(0, 1).reshape(3, 1, -1, piece.stop - piece.start, width)
            if packed is not None:
                # Not before the last one is here: gloo would send both at once, and both would be late.
                coming = self._send(packed)
            del packed
            going.append(self._send(attend(*here).reshape(self.ranks, 1, tokens, -1, width)))
        mine = torch.empty_like(q, memory_format=torch.contiguous_format)
        for piece, place in zip(pieces, going, strict=True):
            mine[:, :, piece] = self._received(place)[:, 0].transpose(0, 1)
        return mine.flatten(1, 2)

    def make_up(self, blocks: int, queries: tuple[int, int, int], out_width: int, like: torch.Tensor) -> None:
        """Take part in what is left of a forward pass of so many blocks, with nothing to say: this rank's memory ran out, and
        the others wait for it. `queries` is the shape of those of all ranks, `like` a tensor of the pass."""
        if self.ranks == 1:
            return
        for exchange in self.under_way.values():
            exchange.work.wait()
        self.under_way.clear()
        tokens, heads, width = queries
        sizes = [piece.stop - piece.start for piece in self._pieces(heads)]
        there, back = [(3, size) for size in sizes], [(1, size) for size in sizes]
        # As `attended` sends them.
        order = [there[0], *chain(*zip(there[1:], back, strict=False)), back[-1]]
        for place in range(self.exchanged, blocks * len(order)):
            tensors, size = order[place % len(order)]
            zeros = like.new_zeros(self.ranks, tensors, tokens // self.ranks, size, width)
            self._received(self._send(zeros))
        if self.exchanged == blocks * len(order):
            self.whole(like.new_zeros(tokens // self.ranks, out_width), 0)

    def _pieces(self, heads: int) -> list[slice]:
        """Of a rank's heads. The first are the smallest: nothing is computed while the first one comes."""
        mine = heads // self.ranks
        count = min(self.pieces, mine)
        return [slice(mine * n // count, mine * (n + 1) // count) for n in range(count)]

    def _send(self, parts: torch.Tensor) -> int:
        """Part i goes to rank i. Returns at once, with the number of the exchange."""
        sent = self._staged(parts.contiguous())
        got = torch.empty_like(sent)
        work = cast("Any", dist).all_to_all_single(got, sent, group=self.group, async_op=True)
        self.under_way[self.exchanged] = AllToAll(work, sent, got, parts.device)
        self.exchanged += 1
        return self.exchanged - 1

    def _received(self, place: int) -> torch.Tensor:
        """What came, in the order of the ranks that sent it. Over NCCL the current stream waits for it, not this thread."""
        exchange = self.under_way.pop(place)
        exchange.work.wait()
        return exchange.got.to(exchange.device)

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        # Gloo takes no CUDA tensors here (torch 2.11 crashes on them), so they go through the host.
        return tensor.cpu() if dist.get_backend(self.group) == "gloo" else tensor
