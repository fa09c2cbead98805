# pyright: reportUnknownMemberType=false
"""One sequence over several ranks (Ulysses): each rank has some tokens of all heads, and for attention all tokens
of some heads. Owns the collectives inside a forward pass.

Over gloo on a CPU the result has the same bits as one rank's. The path over NCCL has not been run yet: it needs
two GPUs.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(slots=True)
class SequenceShare:
    """This rank's part of the sequence. `exchanged` counts exchanges since a forward pass began."""

    ranks: int = 1
    rank: int = 0
    group: dist.ProcessGroup | None = None
    exchanged: int = 0

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

    def heads_here(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[my tokens, all heads, D] to [all tokens, my heads, D]. Collective; one message for all three."""
        if self.ranks == 1:
            return q, k, v
        tokens, heads, width = q.shape
        split = (3, tokens, self.ranks, heads // self.ranks, width)
        sent = torch.stack((q, k, v)).view(split).permute(2, 0, 1, 3, 4)
        got = self._exchange(sent)  # the rank it came from, q k v, its tokens, my heads, width
        here = got.permute(1, 0, 2, 3, 4).reshape(3, -1, heads // self.ranks, width)
        return here[0], here[1], here[2]

    def tokens_here(self, out: torch.Tensor) -> torch.Tensor:
        """[all tokens, my heads, D] back to [my tokens, all heads, D]. Collective."""
        if self.ranks == 1:
            return out
        tokens, heads, width = out.shape
        got = self._exchange(out.reshape(self.ranks, tokens // self.ranks, heads, width))
        return got.permute(1, 0, 2, 3).reshape(tokens // self.ranks, -1, width)

    def make_up(self, blocks: int, queries: tuple[int, int, int], out_width: int, like: torch.Tensor) -> None:
        """Take part in what is left of a forward pass of so many blocks, with nothing to say: this rank's memory ran out, and
        the others wait for it. `queries` is the shape of those of all ranks, `like` a tensor of the pass."""
        if self.ranks == 1:
            return
        tokens, heads, width = queries
        back = (tokens // self.ranks, heads // self.ranks, width)
        for place in range(self.exchanged, 2 * blocks):
            self._exchange(like.new_zeros((self.ranks, *(back if place % 2 else (3, *back)))))
        if self.exchanged == 2 * blocks:
            self.whole(like.new_zeros(tokens // self.ranks, out_width), 0)

    def _exchange(self, parts: torch.Tensor) -> torch.Tensor:
        """Part i goes to rank i; what comes back is in the order of the ranks that sent it."""
        sent = self._staged(parts.contiguous())
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=self.group)
        self.exchanged += 1
        return got.to(parts.device)

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        # Gloo takes no CUDA tensors here (torch 2.11 crashes on them), so they go through the host.
        return tensor.cpu() if dist.get_backend(self.group) == "gloo" else tensor
