"""Writes and reads the published form: a directory as diffusers and transformers lay it out."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
from diffusers.models.transformers.transformer_wan import WanAttnProcessor, WanTransformer3DModel
from transformers import UMT5EncoderModel

from training.recipe import BOUNDARY
from training.sample import scheduler
from training.words import tokenizer


def _half(model: torch.nn.Module) -> torch.nn.Module:
    return model.to("cpu", torch.float16)


def latent_rgb(latents: torch.Tensor, frames: torch.Tensor) -> dict[str, list]:
    """The best linear guess of a pixel's colour from normalized latents, for previews while a clip is made.

    latents [N, t, 16, h, w]; frames [N, T, 3, H, W] in 0..1. rgb = latent @ matrix + bias.
    """
    side = latents.shape[-1]
    pooled = torch.nn.functional.adaptive_avg_pool2d(frames.flatten(0, 1), side).unflatten(
        0, frames.shape[:2]
    )
    groups = [pooled[:, :1], *pooled[:, 1:].split(4, dim=1)]
    colours = torch.stack([g.mean(1) for g in groups], dim=1).permute(0, 1, 3, 4, 2).reshape(-1, 3).double()
    rows = latents.permute(0, 1, 3, 4, 2).reshape(-1, latents.shape[2]).double()
    rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
    fit = torch.linalg.lstsq(rows, colours).solution
    return {
        "matrix": [[round(v, 5) for v in row] for row in fit[:-1].tolist()],
        "bias": [round(v, 5) for v in fit[-1].tolist()],
    }


def export(
    folder: Path,
    vae: AutoencoderKLWan,
    mean: list[float],
    std: list[float],
    text: UMT5EncoderModel,
    expert: WanTransformer3DModel,
    low: WanTransformer3DModel | None,
    preview: dict[str, list],
) -> None:
    """One model directory; with `low`, `expert` is the high-noise one and the boundary is set."""
    folder.mkdir(parents=True, exist_ok=True)
    vae.register_to_config(latents_mean=[round(v, 5) for v in mean], latents_std=[round(v, 5) for v in std])
    _half(vae).save_pretrained(folder / "vae")
    _half(text).save_pretrained(folder / "text_encoder")
    for name, model in (("transformer", expert), ("transformer_2", low)):
        if model is not None:
            for block in model.blocks:
                block.attn2.set_processor(WanAttnProcessor())
            _half(model).save_pretrained(folder / name)
    tokenizer().save_pretrained(folder / "tokenizer")
    scheduler().save_pretrained(folder / "scheduler")
    second = ["diffusers", "WanTransformer3DModel"] if low is not None else [None, None]
    index = {
        "_class_name": "WanPipeline",
        "_diffusers_version": "0.42.1",
        "boundary_ratio": BOUNDARY if low is not None else None,
        "expand_timesteps": low is None,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "PreTrainedTokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": second,
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    (folder / "latent_rgb.json").write_text(json.dumps(preview) + "\n")
