"""Reads a Wan model from a local directory into memory, on every rank of a gang. Never reaches a hub."""

import importlib.util
from functools import partial
from math import prod
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from turnout.engines.base import EngineSetup, Parallel
from turnout.engines.checkpoint import weights_digest
from turnout.engines.preview import read_or_fit
from turnout.engines.rank_layout import RankLayout, join_ranks
from turnout.engines.wan.attention import choose_attention, choose_fp8_attention
from turnout.engines.wan.block_ops import BlockOps, PlainOps
from turnout.engines.wan.codec import Codec
from turnout.engines.wan.engine import WanEngine
from turnout.engines.wan.expert_memory import ExpertMemory
from turnout.engines.wan.kernel_rules import FP8_ATTENTION_NEEDS
from turnout.engines.wan.library_classes import AutoencoderKLWan, UniPCMultistepScheduler
from turnout.engines.wan.lora_weights import AdaptedExpert, AdaptedExperts
from turnout.engines.wan.memory_rules import TILE_ABOVE_PIXELS
from turnout.engines.wan.shape import read_config, read_shape
from turnout.engines.wan.text_encoder import TextEncoder
from turnout.engines.wan.text_model import Umt5Encoder, read_umt5_shape, umt5_weight_map
from turnout.engines.wan.transformer import (
    Runtime,
    WanTransformer,
    quantise,
    read_transformer_shape,
    weight_map,
)
from turnout.engines.wan.wan_model import LeaderParts, WanModel, free_bytes
from turnout.engines.wan.weight_files import stored_tensors
from turnout.engines.wan.weight_reader import WeightReader

_EXPERTS = ("transformer", "transformer_2")


def make_engine(setup: EngineSetup, tile_above_pixels: int = TILE_ABOVE_PIXELS) -> WanEngine:
    """The engine that gangs call `wan`, resident on its device. Collective. With `fp8` the blocks' products are computed
    in fp8 with a scale a row, which is faster and less exact; with `fp8_attention` a device that has none is refused here."""
    weights, parallel = setup.weights, setup.parallel
    place = torch.device(setup.device)
    if place.type == "cuda" and ":" in setup.device:
        torch.cuda.set_device(place)
    compute = getattr(torch, setup.dtype)
    shape = read_shape(weights)
    if shape.heads % parallel.ulysses:
        raise ValueError(f"{shape.heads} heads cannot be shared by {parallel.ulysses} ranks")
    if setup.fp8:
        _check_fp8(place, compute, parallel)
    if setup.fp8_attention:
        _check_fp8_attention(weights, place, compute)
    layout = join_ranks(parallel, place)
    shards = init_device_mesh(place.type, (parallel.ranks,)) if parallel.fsdp and layout.mesh else None
    reader = WeightReader(
        place, setup.progress, _bytes_to_read(weights, shape.experts, parallel, layout.leads)
    )
    folders = [weights / folder for folder in _EXPERTS[: shape.experts]]
    memory = ExpertMemory(place, movable=shape.experts > 1 and not parallel.fsdp)
    experts: list[WanTransformer] = []
    for folder in folders:
        memory.make_room(_numbers(folder) * compute.itemsize, free_bytes(place))
        experts.append(_expert(folder, compute, place, layout, shards, setup.fp8, reader))
        memory.add(experts[-1])
    if layout.leads:
        memory.make_room(_numbers(weights / "text_encoder") * compute.itemsize, free_bytes(place))
    codec = _codec(weights, compute, place, tile_above_pixels, reader)
    return WanEngine(
        WanModel(
            shape=shape,
            weights_digest=weights_digest(weights),
            layout=layout,
            device=place,
            dtype=compute,
            experts=tuple(experts),
            memory=memory,
            adapted=AdaptedExperts(
                tuple(
                    AdaptedExpert(expert, folder, place, setup.loras_apart, partial(memory.change, number))
                    for number, (expert, folder) in enumerate(zip(experts, folders, strict=True))
                ),
                {lora.name: lora for lora in setup.loras},
            ),
            schedule=UniPCMultistepScheduler.load_config(weights / "scheduler", local_files_only=True),
            codec=codec,
            leader=_leader_parts(weights, compute, place, codec, reader) if layout.leads else None,
            tile_above_pixels=tile_above_pixels,
        )
    )


def _numbers(folder: Path) -> int:
    return sum(prod(tensor.shape) for tensor in stored_tensors(folder).values())


def _bytes_to_read(weights: Path, experts: int, parallel: Parallel, leads: bool) -> int:
    """What this rank reads of the experts and the VAE and, on rank 0, of the text encoder."""

    def size(folder: str) -> int:
        return sum(tensor.length for tensor in stored_tensors(weights / folder).values())

    of_experts = sum(map(size, _EXPERTS[:experts])) // (parallel.ranks if parallel.fsdp else 1)
    return of_experts + size("vae") + (size("text_encoder") if leads else 0)


def choose_ops(device: torch.device, dtype: torch.dtype, quantises: bool) -> BlockOps:
    """Triton kernels for bf16 on a GPU, plain PyTorch elsewhere."""
    if _takes_triton(device, dtype):
        from turnout.engines.wan.triton_ops import TritonOps

        return TritonOps(quantises)
    return PlainOps(quantises)


def _takes_triton(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether our kernels can run: they are written for bf16, and not every build of torch comes with Triton."""
    on_gpu = device.type == "cuda" and dtype is torch.bfloat16
    return on_gpu and importlib.util.find_spec("triton") is not None


def _check_fp8(device: torch.device, dtype: torch.dtype, parallel: Parallel) -> None:
    if parallel.fsdp:
        raise ValueError("fp8 cannot be combined with fsdp: the shards are of the exact weights")
    if device.type == "cuda" and (dtype is not torch.bfloat16 or torch.cuda.get_device_capability() < (8, 9)):
        raise ValueError("fp8 needs bfloat16 and a GPU of compute capability 8.9 or more")


def _check_fp8_attention(weights: Path, device: torch.device, dtype: torch.dtype) -> None:
    shape = read_transformer_shape(read_config(weights / _EXPERTS[0] / "config.json"))
    if choose_fp8_attention(device, dtype, shape.head_width) is None:
        raise ValueError(FP8_ATTENTION_NEEDS)


def _expert(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    layout: RankLayout,
    shards: DeviceMesh | None,
    fp8: bool,
    reader: WeightReader,
) -> WanTransformer:
    shape = read_transformer_shape(read_config(folder / "config.json"))
    runtime = Runtime(
        ops=choose_ops(device, dtype, fp8),
        outer_ops=choose_ops(device, dtype, False),
        attention=choose_attention(device, dtype, shape.head_width),
        share=layout.sequence,
    )
    with torch.device("meta"):
        expert = WanTransformer(shape, dtype, runtime).eval()
    if shards is not None:
        from torch.distributed.fsdp import fully_shard  # it takes half a second of CPU to import

        # A block at a time: a rank then holds its shard of the expert and one whole block.
        for block in expert.blocks:
            fully_shard(block, mesh=shards)
        # What is left (embeddings, 2 % of an expert) FSDP would keep whole after the first forward.
        fully_shard(expert, mesh=shards, reshard_after_forward=True)
        expert.to_empty(device=device)
    else:
        _allocate(expert, device)
    reader.fill(expert, weight_map(shape.layers), stored_tensors(folder))
    if fp8:
        quantise(expert)
    return expert


def _allocate(module: torch.nn.Module, device: torch.device) -> None:
    """As `to_empty`, for whole tensors. That one asks a tensor without memory for its like, which imports sympy: 0.4 s in each rank."""
    for part in module.modules():
        for name, there in [*part.named_parameters(recurse=False)]:
            like = torch.empty(there.shape, dtype=there.dtype, device=device)
            setattr(part, name, torch.nn.Parameter(like, requires_grad=there.requires_grad))
        for name, there in [*part.named_buffers(recurse=False)]:
            setattr(part, name, torch.empty(there.shape, dtype=there.dtype, device=device))


def _codec(
    weights: Path, dtype: torch.dtype, device: torch.device, tile_above_pixels: int, reader: WeightReader
) -> Codec:
    folder = weights / "vae"
    with torch.device("meta"):
        vae = AutoencoderKLWan.from_config(AutoencoderKLWan.load_config(folder, local_files_only=True))
    _allocate(vae.requires_grad_(False).eval(), device)
    reader.fill(vae, {name: (name,) for name, _ in vae.named_parameters()}, stored_tensors(folder))
    if _takes_triton(device, dtype):
        from turnout.engines.wan.fast_decoder import speed_up_decoder

        speed_up_decoder(vae)
    return Codec(vae, tile_above_pixels)


def _leader_parts(
    weights: Path, dtype: torch.dtype, device: torch.device, codec: Codec, reader: WeightReader
) -> LeaderParts:
    words = weights / "tokenizer" / "tokenizer.json"
    if not words.exists():
        raise ValueError(f"{words} is missing; published checkpoints have it")
    tokenizer = Tokenizer.from_file(str(words))
    text = TextEncoder(tokenizer, _text_encoder(weights / "text_encoder", dtype, device, reader), device)
    return LeaderParts(text, read_or_fit(weights, codec.encode))


def _text_encoder(
    folder: Path, dtype: torch.dtype, device: torch.device, reader: WeightReader
) -> Umt5Encoder:
    shape = read_umt5_shape(folder / "config.json")
    with torch.device("meta"):
        encoder = Umt5Encoder(shape, dtype)
    _allocate(encoder.requires_grad_(False).eval(), device)
    reader.fill(encoder, umt5_weight_map(shape.num_layers), stored_tensors(folder))
    return encoder
