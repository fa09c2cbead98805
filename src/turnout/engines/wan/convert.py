# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Turns Wan's own files into diffusers' format, one tensor after the other: nothing is held in memory whole.

Wan2.2 is published as safetensors files of each expert beside `.pth` files of the VAE and the text encoder. Values stay as
they are stored; only names, and the file that they lie in, change.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from turnout.engines.base import Progress
from turnout.engines.wan.convert_classes import UMT5Config, UMT5EncoderModel, WanTransformer3DModel
from turnout.engines.wan.library_classes import AutoencoderKLWan
from turnout.engines.wan.original_names import autoencoder_name, text_encoder_name, transformer_name
from turnout.engines.wan.shape import WanKind, read_config
from turnout.engines.wan.tiny import make_scheduler, model_index
from turnout.engines.wan.weight_files import stored_tensors

_CHUNK_BYTES = 32 << 20
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_EXPERTS = ("high_noise_model", "low_noise_model")
# Of Wan2.2's own VAE (48 channels), as published; those of Wan2.1's are diffusers' defaults.
_MEAN = """-0.2289 -0.0052 -0.1323 -0.2339 -0.2799 0.0174 0.1838 0.1557 -0.1382 0.0542 0.2813 0.0891 0.157 -0.0098 0.0375 -0.1825
-0.2246 -0.1207 -0.0698 0.5109 0.2665 -0.2108 -0.2158 0.2502 -0.2055 -0.0322 0.1109 0.1567 -0.0729 0.0899 -0.2799 -0.123
-0.0313 -0.1649 0.0117 0.0723 -0.2839 -0.2083 -0.052 0.3748 0.0152 0.1957 0.1433 -0.2944 0.3573 -0.0548 -0.1681 -0.0667"""
_STD = """0.4765 1.0364 0.4514 1.1677 0.5313 0.499 0.4818 0.5013 0.8158 1.0344 0.5894 1.0901 0.6885 0.6165 0.8454 0.4978
0.5759 0.3523 0.7135 0.6804 0.5833 1.4146 0.8986 0.5659 0.7069 0.5338 0.4889 0.4917 0.4069 0.4999 0.6866 0.4093
0.5709 0.6065 0.6415 0.4944 0.5726 1.2042 0.5458 1.6887 0.3971 1.06 0.3943 0.5537 0.5444 0.4089 0.7468 0.7744"""


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor of the original files; `copy` writes its bytes."""

    shape: tuple[int, ...]
    dtype: str
    length: int
    copy: Callable[[BinaryIO], None]


Sources = Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class ConvertedPart:
    """A folder of the converted model: its tensors by their new names, and the module that must take them all."""

    folder: str
    file: str
    sources: Sources
    module: Any

    @property
    def length(self) -> int:
        return sum(source.length for source in self.sources.values())


def is_original(folder: Path) -> bool:
    return not (folder / "model_index.json").exists() and bool(list(folder.glob("Wan2.*_VAE.*")))


def convert(original: Path, made: Path, progress: Progress | None = None) -> Path:
    """Writes the model in diffusers' format at `made`, all or nothing. ValueError says what is missing or unknown."""
    if made.exists():
        raise ValueError(f"{made} is there already")
    kind, parts = _parts(original)
    total = sum(part.length for part in parts)
    made.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(made.parent).free
    if free < total:
        raise ValueError(
            f"{total / 2**30:.1f} GiB are needed in {made.parent}, and {free / 2**30:.1f} are free"
        )
    building = Path(tempfile.mkdtemp(prefix=f".{made.name}-", dir=made.parent))
    written = 0

    def advanced(count: int) -> None:
        nonlocal written
        written += count
        if progress is not None:
            progress(written, total)

    try:
        building.chmod(0o755)
        for part in parts:
            part.module.save_config(building / part.folder) if hasattr(part.module, "save_config") else (
                part.module.config.save_pretrained(building / part.folder)
            )
            _write(building / part.folder / part.file, part.sources, advanced)
        make_scheduler(kind).save_pretrained(building / "scheduler")
        shutil.copytree(_tokenizer(original), building / "tokenizer")
        experts = len(parts) - 2
        (building / "model_index.json").write_text(json.dumps(model_index(kind, experts), indent=2) + "\n")
        os.replace(building, made)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return made


def _parts(original: Path) -> tuple[WanKind, list[ConvertedPart]]:
    folders = [original / name for name in _EXPERTS if (original / name).is_dir()] or [original]
    kind, experts = "", list[ConvertedPart]()
    for folder, name in zip(folders, ("transformer", "transformer_2"), strict=False):
        config = read_config(folder / "config.json")
        kind = str(config.get("model_type"))
        if kind not in ("t2v", "i2v", "ti2v"):
            raise ValueError(f"{folder} is a model of type {kind}, which is not supported")
        sources = _renamed(_read(folder), transformer_name)
        module = _on_meta(lambda config=config, sources=sources: _transformer(config, sources))
        experts.append(_checked(ConvertedPart(name, "diffusion_pytorch_model.safetensors", sources, module)))
    vae, text = (
        _renamed(_read(_file(original, "Wan2.*_VAE.*")), autoencoder_name),
        _file(original, "models_t5*"),
    )
    texts = _renamed(_read(text), text_encoder_name)
    return cast("WanKind", kind), [
        *experts,
        _checked(
            ConvertedPart(
                "vae", "diffusion_pytorch_model.safetensors", vae, _on_meta(lambda: _autoencoder(vae))
            )
        ),
        _checked(
            ConvertedPart("text_encoder", "model.safetensors", texts, _on_meta(lambda: _text_encoder(texts)))
        ),
    ]


def _transformer(config: Mapping[str, Any], sources: Sources) -> Any:
    if "condition_embedder.image_embedder.norm1.weight" in sources or any(
        ".k_img." in name for name in sources
    ):
        raise ValueError("models that need an image encoder (Wan2.1 image-to-video) are not supported")
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=int(config["num_heads"]),
        attention_head_dim=int(config["dim"]) // int(config["num_heads"]),
        in_channels=int(config["in_dim"]),
        out_channels=int(config["out_dim"]),
        text_dim=_shape(sources, "condition_embedder.text_embedder.linear_1.weight")[1],
        freq_dim=int(config["freq_dim"]),
        ffn_dim=int(config["ffn_dim"]),
        num_layers=int(config["num_layers"]),
        eps=float(config.get("eps", 1e-6)),
    )


def _autoencoder(sources: Sources) -> Any:
    channels = _shape(sources, "post_quant_conv.weight")[0]
    width = _shape(sources, "encoder.conv_in.weight")[0]
    if channels != len(_MEAN.split()):
        return AutoencoderKLWan(base_dim=width, z_dim=channels)
    return AutoencoderKLWan(
        base_dim=width,
        decoder_base_dim=_shape(sources, "decoder.conv_in.weight")[0] // 4,
        z_dim=channels,
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_spatial=16,
        scale_factor_temporal=4,
        latents_mean=[float(number) for number in _MEAN.split()],
        latents_std=[float(number) for number in _STD.split()],
    )


def _text_encoder(sources: Sources) -> Any:
    layer = "encoder.block.0.layer."
    vocabulary, width = _shape(sources, "shared.weight")
    buckets, heads = _shape(sources, f"{layer}0.SelfAttention.relative_attention_bias.weight")
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=vocabulary,
            d_model=width,
            d_kv=_shape(sources, f"{layer}0.SelfAttention.q.weight")[0] // heads,
            d_ff=_shape(sources, f"{layer}1.DenseReluDense.wo.weight")[1],
            num_layers=sum(name.endswith("SelfAttention.q.weight") for name in sources),
            num_heads=heads,
            relative_attention_num_buckets=buckets,
            feed_forward_proj="gated-gelu",
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def _checked(part: ConvertedPart) -> ConvertedPart:
    """The same tensors that diffusers' module has; a wrong guess at the layout must not end as a broken model."""
    wanted = {name: tuple(tensor.shape) for name, tensor in part.module.named_parameters()}
    wrong = [name for name in wanted.keys() ^ part.sources.keys()]
    wrong += [
        name for name in wanted.keys() & part.sources.keys() if wanted[name] != part.sources[name].shape
    ]
    if wrong:
        raise ValueError(
            f"{part.folder}: {len(wrong)} tensors are missing, unknown or of another shape, as {min(wrong)}"
        )
    return part


def _shape(sources: Sources, name: str) -> tuple[int, ...]:
    if name not in sources:
        raise ValueError(f"the files hold no {name}")
    return sources[name].shape


def _on_meta(make: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return make()


def _renamed(sources: Sources, rename: Callable[[str], str]) -> Sources:
    return {rename(name): source for name, source in sources.items()}


def _file(folder: Path, pattern: str) -> Path:
    found = sorted(path for path in folder.glob(pattern) if path.suffix in (".pth", ".safetensors"))
    if len(found) != 1:
        raise ValueError(f"{folder} holds {len(found)} files {pattern}, and one is needed")
    return found[0]


def _tokenizer(original: Path) -> Path:
    found = [path.parent for path in sorted(original.glob("google/*/tokenizer*.json"))]
    if not found:
        raise ValueError(f"{original / 'google'} holds no tokenizer")
    return found[0]


def _read(path: Path) -> Sources:
    """Every tensor of a `.pth` or safetensors file, or of a folder of safetensors files, without reading it."""
    if path.suffix == ".pth":
        stored = cast("dict[str, Any]", torch.load(path, map_location="cpu", mmap=True, weights_only=True))
        return {name: _mapped(name, tensor) for name, tensor in stored.items()}
    folder, only = (path, None) if path.is_dir() else (path.parent, path)
    return {
        name: Source(
            tensor.shape, tensor.dtype, tensor.length, _copier(tensor.path, tensor.offset, tensor.length)
        )
        for name, tensor in stored_tensors(folder, only).items()
    }


def _mapped(name: str, tensor: torch.Tensor) -> Source:
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"{name} is stored as {tensor.dtype}, which is not supported")

    def copy(out: BinaryIO) -> None:
        out.write(memoryview(cast("Any", tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())))

    return Source(tuple(tensor.shape), _DTYPES[tensor.dtype], tensor.numel() * tensor.element_size(), copy)


def _copier(path: Path, offset: int, length: int) -> Callable[[BinaryIO], None]:
    def copy(out: BinaryIO) -> None:
        with path.open("rb") as file:
            file.seek(offset)
            out.writelines(file.read(size) for size in _chunks(length))

    return copy


def _chunks(length: int) -> Iterator[int]:
    for at in range(0, length, _CHUNK_BYTES):
        yield min(_CHUNK_BYTES, length - at)


def _write(path: Path, sources: Sources, advanced: Callable[[int], None]) -> None:
    """A safetensors file: the header says where each tensor will lie, then come the tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(sources):
        source = sources[name]
        header[name] = {
            "dtype": source.dtype,
            "shape": list(source.shape),
            "data_offsets": [at, at + source.length],
        }
        at += source.length
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with path.open("wb") as out:
        out.write(len(words).to_bytes(8, "little") + words)
        for name in sorted(sources):
            sources[name].copy(out)
            advanced(sources[name].length)
    path.chmod(0o644)
