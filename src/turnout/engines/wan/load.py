"""Reads a Wan model from a local directory into memory, on every rank of a gang. Never reaches a hub."""

from pathlib import Path
from typing import Any, Literal

import torch

from turnout.engines.base import Parallel
from turnout.engines.wan.checkpoint import weights_digest
from turnout.engines.wan.codec import TILE_ABOVE_PIXELS, Codec
from turnout.engines.wan.engine import WanEngine
from turnout.engines.wan.library_classes import (
    AutoencoderKLWan,
    AutoTokenizer,
    UMT5EncoderModel,
    UniPCMultistepScheduler,
    WanTransformer3DModel,
    hush,
)
from turnout.engines.wan.preview import read_or_fit
from turnout.engines.wan.rank_layout import join_ranks
from turnout.engines.wan.shape import read_shape
from turnout.engines.wan.spread import Spreader
from turnout.engines.wan.text_encoder import TextEncoder
from turnout.engines.wan.wan_model import LeaderParts, WanModel

Dtype = Literal["float32", "bfloat16"]
_EXPERTS = ("transformer", "transformer_2")


def load(
    weights: Path,
    parallel: Parallel,
    device: str = "cpu",
    dtype: Dtype | None = None,
    tile_above_pixels: int = TILE_ABOVE_PIXELS,
) -> WanEngine:
    """The model in `weights`, resident on `device`. Collective; `dtype` is bfloat16 on a GPU unless said."""
    hush()
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    compute = getattr(torch, dtype or ("bfloat16" if place.type == "cuda" else "float32"))
    shape = read_shape(weights)
    if shape.heads % parallel.ulysses:
        raise ValueError(f"{shape.heads} heads cannot be shared by {parallel.ulysses} ranks")
    layout = join_ranks(parallel, place)
    spreader = Spreader(layout, place, shape.expand_timesteps)
    return WanEngine(
        WanModel(
            shape=shape,
            weights_digest=weights_digest(weights),
            layout=layout,
            device=place,
            dtype=compute,
            experts=tuple(
                _expert(weights / folder, compute, place, spreader) for folder in _EXPERTS[: shape.experts]
            ),
            schedule=UniPCMultistepScheduler.load_config(weights / "scheduler", local_files_only=True),
            leader=_leader_parts(weights, compute, place, tile_above_pixels) if layout.leads else None,
        )
    )


def _expert(folder: Path, dtype: torch.dtype, device: torch.device, spreader: Spreader) -> Any:
    expert = WanTransformer3DModel.from_pretrained(folder, torch_dtype=dtype, local_files_only=True)
    expert.requires_grad_(False).eval()
    # Before the move: with FSDP each rank then takes only its shards to the device.
    spreader.spread(expert)
    return expert.to(device)


def _leader_parts(
    weights: Path, dtype: torch.dtype, device: torch.device, tile_above_pixels: int
) -> LeaderParts:
    tokenizer = AutoTokenizer.from_pretrained(weights / "tokenizer", local_files_only=True)
    text_encoder = UMT5EncoderModel.from_pretrained(
        weights / "text_encoder", dtype=dtype, local_files_only=True
    )
    # The VAE stays in fp32, as its authors run it; it is a small part of the work.
    vae = AutoencoderKLWan.from_pretrained(weights / "vae", torch_dtype=torch.float32, local_files_only=True)
    codec = Codec(vae.requires_grad_(False).eval().to(device), tile_above_pixels)
    text = TextEncoder(tokenizer, text_encoder.requires_grad_(False).eval().to(device))
    return LeaderParts(text, codec, read_or_fit(weights, codec))
