# pyright: reportUnknownMemberType=false
"""Tiny Wan models with random weights, in the on-disk format of the published ones.

They paint noise, but through the real code: two experts, CFG, UniPC, VAE, UMT5. Tests, demos and a laptop's first
run need no download. The sizes keep four heads, so that Ulysses 2 and 4 are legal.
"""

import json
import os
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import torch

from turnout.engines.wan.convert_classes import (
    T5TokenizerFast,
    UMT5Config,
    UMT5EncoderModel,
    WanTransformer3DModel,
    hush,
)
from turnout.engines.wan.library_classes import AutoencoderKLWan, UniPCMultistepScheduler
from turnout.engines.wan.shape import WanKind

TEXT_DIM = 32
LATENT_CHANNELS = 16
BOUNDARY: dict[WanKind, float | None] = {"t2v": 0.875, "i2v": 0.9, "ti2v": None}
SHIFT: dict[WanKind, float] = {"t2v": 12.0, "i2v": 5.0, "ti2v": 5.0}


def make_tiny(kind: WanKind, directory: Path, seed: int = 0) -> Path:
    """Build a tiny model of `kind` at `directory`; the same seed gives the same weights. All or nothing."""
    if directory.exists():
        raise FileExistsError(f"{directory} is there already")
    directory.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _build(kind, building, seed)
        _open_to_all(building)
        os.replace(building, directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return directory


def _open_to_all(root: Path) -> None:
    """mkdtemp and safetensors write for their owner alone, but workers may run as another user."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _build(kind: WanKind, root: Path, seed: int) -> None:
    hush()
    tokenizer = _tokenizer()
    # fork_rng: making a model must not disturb its caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        experts = [_transformer(kind) for _ in range(1 if kind == "ti2v" else 2)]
        vae = _vae()
        text_encoder = _text_encoder(len(tokenizer))
    tokenizer.save_pretrained(root / "tokenizer")
    text_encoder.save_pretrained(root / "text_encoder")
    vae.save_pretrained(root / "vae")
    for folder, expert in zip(("transformer", "transformer_2"), experts, strict=False):
        expert.save_pretrained(root / folder)
    make_scheduler(kind).save_pretrained(root / "scheduler")
    (root / "model_index.json").write_text(json.dumps(model_index(kind, len(experts)), indent=2) + "\n")


def model_index(kind: WanKind, experts: int) -> dict[str, Any]:
    """What says of a folder that it holds such a pipeline, and which parts it has."""
    return {
        "_class_name": "WanImageToVideoPipeline" if kind == "i2v" else "WanPipeline",
        "_diffusers_version": "0.35.0.dev0",
        "boundary_ratio": BOUNDARY[kind] if experts == 2 else None,
        "expand_timesteps": kind == "ti2v",
        **({"image_encoder": [None, None], "image_processor": [None, None]} if kind == "i2v" else {}),
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": ["diffusers", "WanTransformer3DModel"] if experts == 2 else [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }


def _transformer(kind: WanKind) -> Any:
    # Image-to-video sees 4 mask channels and the encoded first frame beside the noise.
    seen = 4 + LATENT_CHANNELS if kind == "i2v" else 0
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=4,
        attention_head_dim=16,
        in_channels=LATENT_CHANNELS + seen,
        out_channels=LATENT_CHANNELS,
        text_dim=TEXT_DIM,
        freq_dim=64,
        ffn_dim=128,
        num_layers=2,
    )


def _vae() -> Any:
    # The published latents_mean/std are diffusers' defaults for 16 channels.
    return AutoencoderKLWan(base_dim=8, z_dim=LATENT_CHANNELS, dim_mult=[1, 2, 4, 4], num_res_blocks=1)


def _text_encoder(vocabulary: int) -> Any:
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=vocabulary,
            d_model=TEXT_DIM,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            dense_act_fn="gelu_new",
            feed_forward_proj="gated-gelu",
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def make_scheduler(kind: WanKind) -> Any:
    """With the published settings of the kind."""
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        flow_shift=SHIFT[kind],
        num_train_timesteps=1000,
        solver_order=2,
        solver_type="bh2",
    )


def _tokenizer() -> Any:
    """A T5-like tokenizer over printable ASCII: one token a character, anything else is unknown."""
    pieces = ["▁", *(c for c in string.printable if not c.isspace())]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -10.0), *((piece, -2.0) for piece in pieces)]
    return T5TokenizerFast(vocab=vocabulary, extra_ids=0, model_max_length=512)
