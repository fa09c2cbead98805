"""Our loop against the pipelines it stands in for: the same bits."""

import io
import shutil
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from turnout.engines.base import EngineSetup, Parallel
from turnout.engines.contract import whole_clip
from turnout.tasks.video_rules import VideoSpec


@pytest.fixture
def reference(tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What diffusers' own pipeline makes of a spec."""
    import torch
    from diffusers.pipelines.wan import pipeline_wan, pipeline_wan_i2v
    from diffusers.pipelines.wan.pipeline_wan import WanPipeline
    from diffusers.pipelines.wan.pipeline_wan_i2v import WanImageToVideoPipeline
    from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler

    from turnout.engines.wan.load import make_engine

    # The image pipeline calls ftfy whether it is there or not; for plain prompts it changes nothing.
    monkeypatch.setattr(
        pipeline_wan_i2v, "ftfy", types.SimpleNamespace(fix_text=lambda text: text), raising=False
    )
    monkeypatch.setattr(pipeline_wan, "is_ftfy_available", lambda: False)

    def run(
        model: str | Path, spec: VideoSpec, image: bytes | None = None, output_type: str = "latent"
    ) -> Any:
        weights = model if isinstance(model, Path) else tiny(model)
        parts: Any = WanPipeline.from_pretrained(weights, local_files_only=True)
        pipeline: Any = parts
        extra: dict[str, Any] = {}
        if image is not None:
            names = ("tokenizer", "text_encoder", "vae", "scheduler", "transformer", "transformer_2")
            pipeline = WanImageToVideoPipeline(
                **{name: getattr(parts, name) for name in names},
                boundary_ratio=parts.config.boundary_ratio,
                expand_timesteps=parts.config.expand_timesteps,
            )
            extra["image"] = Image.open(io.BytesIO(image))
        low, high = spec.guidance
        if parts.config.boundary_ratio is not None:
            extra["guidance_scale_2"] = low
        pipeline.scheduler = UniPCMultistepScheduler.from_config(
            parts.scheduler.config, flow_shift=spec.shift
        )
        pipeline.set_progress_bar_config(disable=True)
        # Ours leaves out the padding, which changes the last bit: test_text_model compares the two.
        leader = make_engine(EngineSetup(weights, Parallel())).model.leader
        assert leader is not None
        return pipeline(
            prompt_embeds=leader.text.encode(spec.prompt),
            negative_prompt_embeds=leader.text.encode(spec.negative_prompt),
            width=spec.width,
            height=spec.height,
            num_frames=spec.frames,
            num_inference_steps=spec.steps,
            guidance_scale=high,
            generator=torch.Generator().manual_seed(spec.seed),
            output_type=output_type,
            **extra,
        ).frames

    return run


@pytest.mark.parametrize(
    ("kind", "with_image"), [("t2v", False), ("i2v", True), ("ti2v", False), ("ti2v", True)]
)
def test_latents_equal_the_reference_pipeline_bit_for_bit(
    engine: Callable[[str], Any],
    reference: Callable[..., Any],
    finish: Callable[..., Any],
    spec: VideoSpec,
    first_frame: bytes,
    kind: str,
    with_image: bool,
) -> None:
    image = first_frame if with_image else None
    assert finish(engine(kind).begin(spec, image)).equal(reference(kind, spec, image))


def test_unguided_render_equals_the_reference_pipeline(
    engine: Callable[[str], Any], reference: Callable[..., Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    unguided = replace(spec, guidance=(1.0, 1.0))
    assert finish(engine("t2v").begin(unguided, None)).equal(reference("t2v", unguided))


def test_decoded_clip_equals_the_reference_pipeline(
    engine: Callable[[str], Any], reference: Callable[..., Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    rendering = engine("t2v").begin(spec, None)
    finish(rendering)
    expected = (reference("t2v", spec, output_type="np")[0] * 255).round().astype(np.uint8)
    assert np.array_equal(list(rendering.decode()), expected)


def test_both_experts_take_part(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    """Guards the tests around it: a spec whose steps all fall on one side would prove nothing of the switch."""
    boundary = engine("t2v").model.shape.boundary_ratio * 1000
    times = engine("t2v").begin(spec, None)._solver.timesteps
    assert (times >= boundary).any() and (times < boundary).any()


@pytest.fixture
def tiny_5b(tiny: Callable[[str], Path], tmp_path: Path) -> Path:
    """A model shaped as the published TI2V-5B: 48 latent channels, and a residual VAE of 4x16x16 that patches."""
    import torch
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    root = tmp_path / "5b"
    shutil.copytree(tiny("ti2v"), root)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vae = AutoencoderKLWan(
            base_dim=8,
            decoder_base_dim=8,
            z_dim=48,
            dim_mult=[1, 2, 4, 4],
            num_res_blocks=1,
            latents_mean=[0.1] * 48,
            latents_std=[0.7] * 48,
            is_residual=True,
            in_channels=12,
            out_channels=12,
            patch_size=2,
            scale_factor_spatial=16,
        )
        published: Any = WanTransformer3DModel.load_config(root / "transformer")
        config = {
            **published,
            "in_channels": 48,
            "out_channels": 48,
        }
        transformer: Any = WanTransformer3DModel.from_config(config)
    vae.save_pretrained(root / "vae")
    transformer.save_pretrained(root / "transformer")
    return root


def test_5b_shaped_model_equals_the_reference_pipeline(
    tiny_5b: Path,
    reference: Callable[..., Any],
    finish: Callable[..., Any],
    spec: VideoSpec,
    first_frame: bytes,
) -> None:
    from turnout.engines.wan.load import make_engine

    engine = make_engine(EngineSetup(tiny_5b, Parallel()))
    for image in (None, first_frame):
        rendering = engine.begin(spec, image)
        assert finish(rendering).equal(reference(tiny_5b, spec, image))
        assert rendering.latents.shape == (1, 48, 3, 4, 6)
        frames = whole_clip(rendering.decode())
        assert frames is not None and frames.shape == (9, 64, 96, 3)
        assert rendering.preview()
