# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false
"""Spreads a transformer over ranks: its sequence (Ulysses), its weights (FSDP2), or both."""

from typing import Any, cast

import torch
from diffusers.hooks.context_parallel import apply_context_parallel
from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from turnout.engines.wan.rank_layout import RankLayout


class Spreader:
    """Does to each expert what `layout.parallel` says; made once, since both experts share the groups."""

    def __init__(self, layout: RankLayout, device: torch.device, per_token_times: bool) -> None:
        parallel = layout.parallel
        self._per_token_times = per_token_times
        self._sequence = _sequence_config(layout, device) if parallel.ulysses > 1 else None
        self._shards = (
            init_device_mesh(device.type, (parallel.ranks,))
            if parallel.fsdp and layout.mesh is not None
            else None
        )

    def spread(self, expert: Any) -> None:
        if self._sequence is not None:
            _split_sequence(expert, self._sequence, self._per_token_times)
        if self._shards is not None:
            # A block at a time: a rank then holds its shard of the expert and one whole block.
            for block in expert.blocks:
                fully_shard(block, mesh=self._shards)
            # What is left (embeddings, 2 % of an expert) FSDP would keep whole after the first forward.
            fully_shard(expert, mesh=self._shards, reshard_after_forward=True)


def _sequence_config(layout: RankLayout, device: torch.device) -> ParallelConfig:
    # By hand, since diffusers' enable_parallelism divides by the number of accelerators, which may be none.
    config = ParallelConfig(
        context_parallel_config=ContextParallelConfig(
            ulysses_degree=layout.parallel.ulysses, mesh=layout.mesh
        )
    )
    config.setup(layout.rank, layout.parallel.ranks, device, mesh=layout.mesh)
    return config


def _split_sequence(expert: Any, config: ParallelConfig, per_token_times: bool) -> None:
    for module in expert.modules():
        processor = getattr(module, "processor", None)
        if hasattr(processor, "_parallel_config"):
            cast("Any", processor)._parallel_config = config
    assert config.context_parallel_config is not None
    plan = dict(expert._cp_plan)
    if not per_token_times:
        plan.pop("")  # it would split the timesteps, and warn of a single one at every load
    apply_context_parallel(expert, config.context_parallel_config, plan)
