"""The checkpoint format: safetensors with a few words of metadata, so that reading one runs no code."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch

from turnout.engines.base import CheckpointRefused
from turnout.tasks.video_rules import VideoSpec

FORMAT = "turnout-wan-1"
_END_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """Named tensors and a few named words, as they lie in a checkpoint."""

    tensors: Mapping[str, torch.Tensor]
    words: Mapping[str, str]


def spec_digest(spec: VideoSpec) -> str:
    """Two specs with the same digest ask for the same clip."""
    text = json.dumps(asdict(spec), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def weights_digest(weights: Path) -> str:
    """Tells two sets of weights apart without reading them whole: names, sizes, and both ends of every file."""
    digest = hashlib.sha256()
    for path in sorted(p for p in weights.rglob("*") if p.is_file()):
        # What the hub's library notes of a download is another on every machine.
        if any(part.startswith(".") for part in path.relative_to(weights).parts):
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(weights)} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_END_BYTES))
            file.seek(max(0, size - _END_BYTES))
            digest.update(file.read(_END_BYTES))
    return digest.hexdigest()


def pack(packed: Packed) -> bytes:
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in packed.tensors.items():
        kept = tensor.detach().cpu().contiguous()
        # The format takes no tensors that share memory.
        shared = any(kept.data_ptr() == other.data_ptr() for other in tensors.values())
        tensors[name] = kept.clone() if shared else kept
    # One entry: safetensors writes several in random order, and equal checkpoints should have equal bytes.
    return safetensors.torch.save(tensors, {FORMAT: json.dumps(dict(packed.words), sort_keys=True)})


def unpack(data: bytes) -> Packed:
    try:
        tensors = safetensors.torch.load(data)
        header_bytes = int.from_bytes(data[:8], "little")
        header = cast("dict[str, dict[str, Any]]", json.loads(data[8 : 8 + header_bytes]))
        words = cast("dict[str, str]", json.loads(header["__metadata__"][FORMAT]))
    except (safetensors.SafetensorError, ValueError, KeyError) as err:
        raise CheckpointRefused(f"this is no checkpoint of format {FORMAT}: {err!r}") from err
    return Packed(tensors, words)
