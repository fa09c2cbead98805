"""Wan's own files come out as the model that diffusers' format would hold: the same names, the same bytes, the same clip."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnout.engines.base import EngineSetup, Parallel
from turnout.engines.wan.original_names import autoencoder_name, text_encoder_name, transformer_name
from turnout.tasks.video_rules import VideoSpec

# The other way round, written down independently.
_TRANSFORMER = [
    (r"^condition_embedder\.time_embedder\.linear_1", "time_embedding.0"),
    (r"^condition_embedder\.time_embedder\.linear_2", "time_embedding.2"),
    (r"^condition_embedder\.text_embedder\.linear_1", "text_embedding.0"),
    (r"^condition_embedder\.text_embedder\.linear_2", "text_embedding.2"),
    (r"^condition_embedder\.time_proj", "time_projection.1"),
    (r"^scale_shift_table", "head.modulation"),
    (r"^proj_out", "head.head"),
    (r"\.scale_shift_table", ".modulation"),
    (r"attn1", "self_attn"),
    (r"attn2", "cross_attn"),
    (r"\.to_out\.0", ".o"),
    (r"\.to_([qkv])\.", r".\1."),
    (r"ffn\.net\.0\.proj", "ffn.0"),
    (r"ffn\.net\.2", "ffn.2"),
    (r"\.norm2\.", ".norm3."),
]
_RESIDUAL = [
    (r"(resnets\.\d+|(?:down|up)_blocks\.\d+)\.norm1", r"\1.residual.0"),
    (r"(resnets\.\d+|(?:down|up)_blocks\.\d+)\.conv1", r"\1.residual.2"),
    (r"(resnets\.\d+|(?:down|up)_blocks\.\d+)\.norm2", r"\1.residual.3"),
    (r"(resnets\.\d+|(?:down|up)_blocks\.\d+)\.conv2", r"\1.residual.6"),
    (r"conv_shortcut", "shortcut"),
    (r"\.conv_in", ".conv1"),
    (r"\.norm_out", ".head.0"),
    (r"\.conv_out", ".head.2"),
    (r"^quant_conv", "conv1"),
    (r"^post_quant_conv", "conv2"),
    (r"mid_block\.attentions\.0", "middle.1"),
    (r"mid_block\.resnets\.0", "middle.0"),
    (r"mid_block\.resnets\.1", "middle.2"),
]
_FLAT = [
    *_RESIDUAL,
    (r"up_blocks\.(\d+)\.resnets\.(\d+)", lambda m: f"upsamples.{4 * int(m[1]) + int(m[2])}"),
    (r"up_blocks\.(\d+)\.upsamplers\.0", lambda m: f"upsamples.{4 * int(m[1]) + 3}"),
    (r"down_blocks", "downsamples"),
]
_NESTED = [
    *_RESIDUAL,
    (r"down_blocks\.(\d+)\.resnets", r"downsamples.\1.downsamples"),
    (r"down_blocks\.(\d+)\.downsampler", r"downsamples.\1.downsamples.2"),
    (r"up_blocks\.(\d+)\.resnets", r"upsamples.\1.upsamples"),
    (r"up_blocks\.(\d+)\.upsampler", r"upsamples.\1.upsamples.3"),
]
_TEXT = [
    (r"^shared", "token_embedding"),
    (r"^encoder\.final_layer_norm", "norm"),
    (r"^encoder\.block", "blocks"),
    (r"\.layer\.0\.layer_norm", ".norm1"),
    (r"\.layer\.0\.SelfAttention\.relative_attention_bias", ".pos_embedding.embedding"),
    (r"\.layer\.0\.SelfAttention", ".attn"),
    (r"\.layer\.1\.layer_norm", ".norm2"),
    (r"\.layer\.1\.DenseReluDense\.wi_0", ".ffn.gate.0"),
    (r"\.layer\.1\.DenseReluDense\.wi_1", ".ffn.fc1"),
    (r"\.layer\.1\.DenseReluDense\.wo", ".ffn.fc2"),
]


def original(name: str, rules: list[tuple[str, Any]]) -> str:
    for pattern, replaced in rules:
        name = re.sub(pattern, replaced, name)
    return name


def as_published(model: Path, made: Path, kind: str, nested: bool) -> Path:
    """The same model in Wan's layout: shards of safetensors, `.pth` files, the tokenizer of google."""
    import torch
    from safetensors.torch import load_file, save_file

    folders = [("transformer", "high_noise_model"), ("transformer_2", "low_noise_model")]
    for ours, theirs in folders if (model / "transformer_2").exists() else [("transformer", "")]:
        folder = made / theirs
        folder.mkdir(parents=True, exist_ok=True)
        stored = load_file(model / ours / "diffusion_pytorch_model.safetensors")
        named = {original(name, _TRANSFORMER): tensor for name, tensor in stored.items()}
        shards = [dict(list(named.items())[half::2]) for half in (0, 1)]
        index: dict[str, str] = {}
        for place, shard in enumerate(shards, 1):
            file = f"diffusion_pytorch_model-{place:05}-of-00002.safetensors"
            save_file(shard, folder / file)
            index |= dict.fromkeys(shard, file)
        (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(
            json.dumps({"weight_map": index})
        )
        config = json.loads((model / ours / "config.json").read_text())
        said = {
            "model_type": kind,
            "dim": config["num_attention_heads"] * config["attention_head_dim"],
            "num_heads": config["num_attention_heads"],
            "in_dim": config["in_channels"],
            "out_dim": config["out_channels"],
            **{name: config[name] for name in ("ffn_dim", "freq_dim", "num_layers", "eps")},
        }
        (folder / "config.json").write_text(json.dumps(said))
    vae = load_file(model / "vae/diffusion_pytorch_model.safetensors")
    rules, file = (_NESTED, "Wan2.2_VAE.pth") if nested else (_FLAT, "Wan2.1_VAE.pth")
    torch.save({original(name, rules): tensor for name, tensor in vae.items()}, made / file)
    text = load_file(model / "text_encoder/model.safetensors")
    text.pop("encoder.embed_tokens.weight", None)
    torch.save(
        {original(name, _TEXT): tensor for name, tensor in text.items()},
        made / "models_t5_umt5-xxl-enc-bf16.pth",
    )
    (made / "google").mkdir()
    (model / "tokenizer").rename(made / "google/umt5-xxl")
    return made


@pytest.fixture
def model(tmp_path: Path, single_thread: None) -> Path:
    """A tiny text-to-video model whose VAE has as many layers as the published one."""
    from turnout.engines.wan.library_classes import AutoencoderKLWan
    from turnout.engines.wan.tiny import make_tiny

    made = make_tiny("t2v", tmp_path / "tiny")
    AutoencoderKLWan(base_dim=8, z_dim=16).save_pretrained(made / "vae")
    return made


def test_a_model_in_wans_layout_renders_the_same_clip(
    model: Path, tmp_path: Path, spec: VideoSpec, finish: Callable[..., Any]
) -> None:
    import shutil

    import torch

    from turnout.engines.wan.convert import convert, is_original
    from turnout.engines.wan.load import make_engine
    from turnout.engines.wan.model_fit import read_model_files

    shutil.copytree(model / "tokenizer", tmp_path / "kept")
    published = as_published(model, tmp_path / "published", "t2v", nested=False)
    shutil.move(tmp_path / "kept", model / "tokenizer")
    assert is_original(published) and not is_original(model)
    told: list[tuple[int, int]] = []
    made = convert(published, tmp_path / "made", lambda *at: told.append(at))
    assert told[-1][0] == told[-1][1] == read_model_files(made).stored_bytes
    wanted, got = (
        make_engine(EngineSetup(model, Parallel())).begin(spec, None),
        make_engine(EngineSetup(made, Parallel())).begin(spec, None),
    )
    assert torch.equal(finish(wanted), finish(got))
    assert np.array_equal(list(wanted.decode() or ()), list(got.decode() or ()))
    with pytest.raises(ValueError, match="already"):
        convert(published, made)


def test_wan22s_own_vae_is_taken_whole(tmp_path: Path, single_thread: None) -> None:
    from turnout.engines.wan.convert import convert
    from turnout.engines.wan.convert_classes import WanTransformer3DModel
    from turnout.engines.wan.library_classes import AutoencoderKLWan
    from turnout.engines.wan.tiny import make_tiny

    model = make_tiny("ti2v", tmp_path / "tiny")
    sizes = {"base_dim": 8, "decoder_base_dim": 16, "z_dim": 48, "is_residual": True, "in_channels": 12}
    numbers = {"latents_mean": [0.0] * 48, "latents_std": [1.0] * 48}
    AutoencoderKLWan(
        **sizes, out_channels=12, patch_size=2, scale_factor_spatial=16, scale_factor_temporal=4, **numbers
    ).save_pretrained(model / "vae")
    config = json.loads((model / "transformer/config.json").read_text())
    WanTransformer3DModel.from_config({**config, "in_channels": 48, "out_channels": 48}).save_pretrained(
        model / "transformer"
    )
    made = convert(as_published(model, tmp_path / "published", "ti2v", nested=True), tmp_path / "made")
    vae = AutoencoderKLWan.from_pretrained(made / "vae")
    assert vae.config.latents_std[39] == 1.6887 and vae.config.scale_factor_spatial == 16
    index = json.loads((made / "model_index.json").read_text())
    assert index["expand_timesteps"] and index["transformer_2"] == [None, None]


def test_names_are_those_of_diffusers_own_conversion(model: Path) -> None:
    import torch
    from diffusers.loaders import single_file_utils as theirs
    from safetensors.torch import load_file

    for folder, rules, ours, convert in (
        ("transformer", _TRANSFORMER, transformer_name, theirs.convert_wan_transformer_to_diffusers),
        ("vae", _FLAT, autoencoder_name, theirs.convert_wan_vae_to_diffusers),
    ):
        names = list(load_file(model / folder / "diffusion_pytorch_model.safetensors"))
        published = [original(name, rules) for name in names]
        converted = convert({name: torch.tensor(place) for place, name in enumerate(published)})
        assert {names[int(place)] for place in converted.values()} == set(names)
        assert all(name == ours(published[int(place)]) for name, place in converted.items())
    assert (
        text_encoder_name("blocks.3.ffn.gate.0.weight")
        == "encoder.block.3.layer.1.DenseReluDense.wi_0.weight"
    )


def test_files_that_do_not_fit_are_refused(model: Path, tmp_path: Path) -> None:
    import torch

    from turnout.engines.wan.convert import convert

    published = as_published(model, tmp_path / "published", "t2v", nested=False)
    vae = torch.load(published / "Wan2.1_VAE.pth", weights_only=True)
    vae.pop("conv2.bias")
    torch.save(vae, published / "Wan2.1_VAE.pth")
    with pytest.raises(ValueError, match=r"vae: 1 tensors are missing.*post_quant_conv\.bias"):
        convert(published, tmp_path / "made")
    (published / "Wan2.1_VAE.pth").unlink()
    with pytest.raises(ValueError, match="0 files"):
        convert(published, tmp_path / "made")
    assert not (tmp_path / "made").exists() and not list(tmp_path.glob(".made*"))
