"""A resident Wan model on one rank: what every rank holds, and what rank 0 holds besides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from turnout.engines.preview import LatentColours
from turnout.engines.rank_layout import RankLayout
from turnout.engines.wan.attention import AttentionKernel, choose_fp8_attention
from turnout.engines.wan.codec import Codec
from turnout.engines.wan.expert_memory import ExpertMemory
from turnout.engines.wan.lora_weights import AdaptedExperts
from turnout.engines.wan.memory_rules import MemoryPlan
from turnout.engines.wan.shape import WanShape
from turnout.engines.wan.text_encoder import TextEncoder
from turnout.engines.wan.transformer import WanTransformer


@dataclass(frozen=True, slots=True)
class LeaderParts:
    """What only rank 0 holds, so that the others have their memory for the experts."""

    text: TextEncoder
    colours: LatentColours


@dataclass(frozen=True, slots=True)
class WanModel:
    shape: WanShape
    weights_digest: str
    layout: RankLayout
    device: torch.device
    dtype: torch.dtype
    """What the experts compute in; some of their layers stay fp32."""
    experts: tuple[WanTransformer, ...]
    """High noise first, as on disk."""
    memory: ExpertMemory
    adapted: AdaptedExperts
    schedule: Mapping[str, Any]
    codec: Codec
    leader: LeaderParts | None
    tile_above_pixels: int

    @property
    def decoding_ranks(self) -> int:
        """How many ranks decode, a band of rows each. On a CPU one does: there a clip has the same bytes on any number of
        ranks, and convolutions round by the height of what they are given."""
        return self.layout.parallel.ranks if self.device.type == "cuda" else 1

    def fp8_attention(self) -> AttentionKernel | None:
        """Tried when a clip asks for it for the first time: its kernels take seconds to compile."""
        return choose_fp8_attention(self.device, self.dtype, self.experts[0].shape.head_width)

    def memory_plan(self, fp8_attention: bool = False) -> MemoryPlan:
        return MemoryPlan(
            shape=self.shape,
            width=self.experts[0].shape.width,
            number_bytes=self.dtype.itemsize,
            ulysses=self.layout.parallel.ulysses,
            ranks=self.decoding_ranks,
            tile_above_pixels=self.tile_above_pixels,
            fp8_attention=fp8_attention,
        )

    def free_bytes(self) -> int | None:
        """Memory that a render could have on this rank's device; None where that is not known."""
        return free_bytes(self.device)

    def release_unused(self) -> None:
        """Give back what the last render left in the allocator: a clip of another size could not use it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def free_bytes(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
