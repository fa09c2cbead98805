"""The recipes of docs/recipes.md: their models as the published files would be, and the figures that stand beside them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from turnout.engines.base import Parallel
from turnout.engines.wan.model_fit import GIB, Clip, Mode, StoredModel, offered_clips
from turnout.engines.wan.shape import DEFAULTS, WanKind, WanShape
from turnout.fleet.declared_models import read_model
from turnout.fleet.model_rules import Model
from turnout.tasks.video_rules import ImageUse, RequestedVideo, VideoSpec, settle

# As published: UMT5-XXL and a VAE beside two experts of 14.3 billion numbers, or one of 5.
_LARGE, _SMALL = "A14B", "5B"


def stored(weights: str) -> StoredModel:
    """What `read_model_files` finds in the published files."""
    if _SMALL in weights:
        shape = WanShape("ti2v", 24, 30, (1, 2, 2), 48, 16, 4, None, 1, DEFAULTS["ti2v"])
        return StoredModel(shape, 3072, 5_000_000_000, 4_780_000_000, 6_380_000_000, 22_760_000_000)
    kind: WanKind = "i2v" if "I2V" in weights else "t2v"
    boundary = 0.9 if kind == "i2v" else 0.875
    shape = WanShape(kind, 40, 40, (1, 2, 2), 16, 8, 4, boundary, 2, DEFAULTS[kind])
    return StoredModel(shape, 5120, 2 * 14_288_000_000, 2 * 13_900_000_000, 5_810_000_000, 68_772_000_000)


def write_headers(folder: Path, weights: str) -> Path:
    """A model's folder whose files have all headers and no bytes: they are holes as long as the weights."""
    model = stored(weights)
    shape, experts = model.shape, model.shape.experts
    _json(
        folder / "model_index.json",
        {
            "_class_name": "WanPipeline",
            "expand_timesteps": shape.kind == "ti2v",
            "boundary_ratio": shape.boundary_ratio,
            "transformer_2": ["diffusers", "WanTransformer3DModel"] if experts == 2 else [None, None],
        },
    )
    seen = 36 if shape.kind == "i2v" else shape.latent_channels
    config: dict[str, Any] = {"num_attention_heads": shape.heads, "attention_head_dim": 128}
    config |= {"num_layers": shape.layers, "in_channels": seen, "patch_size": [1, 2, 2]}
    in_block = model.in_blocks // experts // shape.layers
    blocks = {f"blocks.{n}.products": [shape.heads, in_block // shape.heads] for n in range(shape.layers)}
    rest = (model.experts - model.in_blocks) // experts
    for part in ("transformer", "transformer_2")[:experts]:
        _json(folder / part / "config.json", config)
        _hole(folder / part / "diffusion_pytorch_model.safetensors", {**blocks, "rest": [rest]})
    _json(
        folder / "vae" / "config.json",
        {"z_dim": shape.latent_channels, "scale_factor_spatial": shape.scale_spatial},
    )
    _hole(folder / "vae" / "diffusion_pytorch_model.safetensors", {"all": [130_000_000]})
    _hole(folder / "text_encoder" / "model.safetensors", {"all": [model.for_leader - 130_000_000]})
    return folder


def _json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def _hole(path: Path, shapes: dict[str, list[int]]) -> None:
    head, at = dict[str, Any](), 0
    for name, shape in shapes.items():
        size = 2
        for side in shape:
            size *= side
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def declared(text: str) -> list[Model]:
    models = yaml.safe_load(text)["models"]
    return [
        read_model({"alias": name, "engine": "video", "model_name": said.pop("weights"), **said})
        for name, said in models.items()
    ]


def rows(text: str, gpus: str) -> list[tuple[str, ...]]:
    """The table beside a recipe: its first model's clips on so many GPUs."""
    model, gib = declared(text)[0], float(gpus.rpartition(" x ")[2])
    files, video = stored(model.weights), model.gang
    mode = Mode(
        Parallel(video.ulysses, video.cfg, video.fsdp), model.gang_dtype, video.fp8, video.fp8_attention
    )
    full = settle(
        RequestedVideo("any", image="i" if video.rules.image is ImageUse.REQUIRED else None),
        video.rules,
        ulysses=1,
        seed=0,
    )
    few = replace(full, steps=4, guidance=(1.0, 1.0))
    clips = [clip for clip in offered_clips(files.shape, video.rules) if clip.width != clip.height]
    return [_row(files, mode, clip, gib, (full, few)) for clip in clips]


def _row(
    files: StoredModel, mode: Mode, clip: Clip, gib: float, specs: tuple[VideoSpec, ...]
) -> tuple[str, ...]:
    both = files.needed_bytes(mode, clip) / GIB
    away = files.shape.experts > 1 and not mode.parallel.fsdp and both > gib
    needed = files.needed_bytes(mode, clip, away) / GIB
    assert needed <= gib, f"{clip} does not fit: {needed:.1f} GiB"
    seconds = [f"{files.clip_s(mode, clip, spec):.0f}" for spec in specs]
    return (f"{clip.width}x{clip.height}, {clip.frames} frames", f"{needed:.1f}", *seconds)
