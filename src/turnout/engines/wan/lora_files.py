# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Reads an adapter (LoRA) for one expert. Names are those of diffusers and PEFT, of Wan's own layers, or of musubi-tuner; what is
not understood is refused, because an adapter that is applied in part makes another clip without a word."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from turnout.engines.base import Unrenderable
from turnout.engines.wan.original_names import transformer_name

_PREFIX = re.compile(r"^(base_model\.model\.|transformer(_2)?\.|model\.diffusion_model\.|diffusion_model\.)+")
_MUSUBI = re.compile(r"^lora_unet_blocks_(\d+)_(?:(self_attn|cross_attn)_([qkvo])|ffn_([02]))\.")
_SUFFIX = re.compile(
    r"\.(?:(lora_A|lora_down)(?:\.default)?\.weight|(lora_B|lora_up)(?:\.default)?\.weight|(alpha)|(diff_b|lora_B\.bias)|(diff))$"
)


@dataclass(frozen=True, slots=True)
class LoraLayer:
    """Adds `up @ down × scale` to a layer's weight, and `bias` to its bias."""

    down: torch.Tensor
    up: torch.Tensor
    scale: float
    bias: torch.Tensor | None = None


def read_lora(path: Path, layers: Collection[str]) -> dict[str, LoraLayer]:
    """The adapter's layers by diffusers' names. `layers` are those that the model has; Unrenderable says what does not fit."""
    file = path / "adapter_model.safetensors" if path.is_dir() else path
    try:
        tensors, default = load_file(file), _default_scale(path, file)
    except (OSError, SafetensorError, ValueError) as err:
        raise Unrenderable(f"the adapter {path.name} cannot be read: {err}") from err
    found: dict[str, dict[str, torch.Tensor]] = {}
    strange: list[str] = []
    for name, tensor in tensors.items():
        layer, kind = _named(name)
        if layer in layers and kind in ("down", "up", "alpha", "bias"):
            found.setdefault(layer, {})[kind] = tensor
        elif kind in ("bias", "diff") and not tensor.any():
            continue  # some tools write zeros for norms that they left alone
        else:
            strange.append(name)
    if strange or not found:
        example = f", as {min(strange)}" if strange else ""
        raise Unrenderable(
            f"the adapter {path.name} does not fit this model: {len(strange)} names are unknown{example}"
        )
    return {layer: _layer(path, layer, parts, default) for layer, parts in found.items()}


def _layer(path: Path, name: str, parts: dict[str, torch.Tensor], default: float | None) -> LoraLayer:
    if "down" not in parts or "up" not in parts or parts["down"].shape[0] != parts["up"].shape[1]:
        raise Unrenderable(f"the adapter {path.name} is incomplete at {name}")
    rank = parts["down"].shape[0]
    scale = float(parts["alpha"]) / rank if "alpha" in parts else 1.0 if default is None else default
    return LoraLayer(parts["down"], parts["up"], scale, parts.get("bias"))


def _named(name: str) -> tuple[str, str]:
    """Diffusers' name of the layer, and what of it the tensor is; empty when neither is known."""
    bare = _PREFIX.sub("", name)
    if found := _MUSUBI.match(bare):
        number, attention, part, ffn = found.groups()
        inner = f"{attention}.{part}" if attention else f"ffn.{ffn}"
        bare = f"blocks.{number}.{inner}.{bare[found.end() :]}"
    end = _SUFFIX.search(bare)
    if end is None:
        return "", ""
    kinds = ("down", "up", "alpha", "bias", "diff")
    kind = next(kind for kind, group in zip(kinds, end.groups(), strict=True) if group)
    return transformer_name(f"{bare[: end.start()]}.").removesuffix("."), kind


def _default_scale(path: Path, file: Path) -> float | None:
    """PEFT writes alpha and rank beside the file, diffusers into its header; others give each layer an alpha."""
    said: dict[str, Any] = {}
    beside = path / "adapter_config.json"
    if path.is_dir() and beside.exists():
        said = json.loads(beside.read_text())
    else:
        with safe_open(file, "pt") as opened:
            written = (opened.metadata() or {}).get("lora_adapter_metadata")
        if written:
            whole = cast("dict[str, Any]", json.loads(written))
            said = {name.removeprefix("transformer."): value for name, value in whole.items()}
    if said.get("use_dora") or said.get("alpha_pattern") or said.get("rank_pattern"):
        raise ValueError("DoRA, and a rank or alpha for each layer, are not supported")
    alpha, rank = said.get("lora_alpha"), said.get("r")
    if not alpha or not rank:
        return None
    return float(alpha) / (rank**0.5 if said.get("use_rslora") else rank)
