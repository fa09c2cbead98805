"""Adapters: merged or kept apart they give what PEFT's formulas give on diffusers' transformer, and leave nothing behind."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.conftest import SPEC
from tests.engines.gangs import Seen, run_gang

from turnout.engines.base import EngineSetup, Parallel, Unrenderable
from turnout.tasks.video_rules import Lora, LoraUse

LAYERS = (
    "attn1.to_q",
    "attn1.to_v",
    "attn1.to_out.0",
    "attn2.to_k",
    "attn2.to_out.0",
    "ffn.net.0.proj",
    "ffn.net.2",
)
ORIGINAL = ("self_attn.q", "self_attn.v", "self_attn.o", "cross_attn.k", "cross_attn.o", "ffn.0", "ffn.2")
WIDTHS = {"ffn.net.0.proj": (64, 128), "ffn.net.2": (128, 64)}
RANK, ALPHA = 4, 2.0
USE = (LoraUse("style", 0.75),)


def tensors(seed: int) -> dict[str, Any]:
    """Of an adapter for the tiny model: `layer.down` and `layer.up` by diffusers' names."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Any] = {}
    for block in range(2):
        for layer in LAYERS:
            inside, outside = WIDTHS.get(layer, (64, 64))
            made[f"blocks.{block}.{layer}.down"] = torch.randn(RANK, inside, generator=generator) * 0.3
            made[f"blocks.{block}.{layer}.up"] = torch.randn(outside, RANK, generator=generator) * 0.3
    return made


def write(path: Path, style: str, seed: int = 1) -> Path:
    """The same adapter in each way that people write them."""
    import torch
    from safetensors.torch import save_file

    out: dict[str, Any] = {}
    for name, tensor in tensors(seed).items():
        layer, _, part = name.rpartition(".")
        _, block, inner = layer.split(".", 2)
        theirs = ORIGINAL[LAYERS.index(inner)]
        if style == "peft":
            out[f"base_model.model.{layer}.lora_{'A' if part == 'down' else 'B'}.weight"] = tensor
        elif style == "diffusers":
            out[f"transformer.{layer}.lora_{'A' if part == 'down' else 'B'}.weight"] = tensor
        elif style == "original":
            out[f"diffusion_model.blocks.{block}.{theirs}.lora_{part}.weight"] = tensor
            out[f"diffusion_model.blocks.{block}.{theirs}.alpha"] = torch.tensor(ALPHA)
            out[f"diffusion_model.blocks.{block}.norm3.diff"] = torch.zeros(64)
        else:
            flat = f"lora_unet_blocks_{block}_{theirs.replace('.', '_')}"
            out[f"{flat}.lora_{part}.weight"] = tensor
            out[f"{flat}.alpha"] = torch.tensor(ALPHA)
    metadata = {"lora_adapter_metadata": json.dumps({"transformer.lora_alpha": ALPHA, "transformer.r": RANK})}
    file = path
    if style == "peft":
        path.mkdir()
        file, metadata = path / "adapter_model.safetensors", None
        (path / "adapter_config.json").write_text(json.dumps({"lora_alpha": ALPHA, "r": RANK}))
    save_file(out, file, metadata=metadata if style == "diffusers" else None)
    return path


@pytest.fixture(scope="module")
def weights(tiny: Callable[[str], Path]) -> Path:
    return tiny("t2v")


@pytest.fixture
def loaded(weights: Path) -> Callable[..., Any]:
    from turnout.engines.wan.load import make_engine

    def get(*loras: Lora, apart: bool = False, **more: Any) -> Any:
        return make_engine(EngineSetup(weights, Parallel(), loras=loras, loras_apart=apart, **more))

    return get


def predicted(engine: Any) -> Any:
    """What the first expert makes of fixed noise."""
    import torch

    from turnout.engines.wan.transformer import StepTimes, TextContext

    generator = torch.Generator().manual_seed(3)
    seen = torch.randn(1, 16, 3, 8, 12, generator=generator)
    text = torch.randn(1, 512, 32, generator=generator)
    with torch.no_grad():
        return engine.model.experts[0](seen, StepTimes(torch.tensor([700.0])), TextContext(text))


def reference(weights: Path, apart: bool) -> Any:
    """Diffusers' transformer with PEFT's formulas: weight + (B A) s, or out + B (A x) s."""
    import torch

    from turnout.engines.wan.convert_classes import WanTransformer3DModel

    model = WanTransformer3DModel.from_pretrained(weights / "transformer")
    made, scale = tensors(1), 0.75 * ALPHA / RANK
    for name in {name.rpartition(".")[0] for name in made}:
        down, up = made[f"{name}.down"], made[f"{name}.up"]
        linear = model.get_submodule(name)
        if apart:
            linear.register_forward_hook(
                lambda _, args, out, down=down, up=up: out + (args[0] @ down.T @ up.T) * scale
            )
        else:
            linear.weight.data += (up @ down) * scale
    generator = torch.Generator().manual_seed(3)
    seen = torch.randn(1, 16, 3, 8, 12, generator=generator)
    text = torch.randn(1, 512, 32, generator=generator)
    with torch.no_grad():
        return model(seen, torch.tensor([700.0]), text, return_dict=False)[0]


@pytest.mark.parametrize("style", ["peft", "diffusers", "original", "musubi"])
@pytest.mark.parametrize("apart", [False, True], ids=["merged", "apart"])
def test_an_adapter_gives_the_bits_of_pefts_formulas(
    loaded: Callable[..., Any], weights: Path, tmp_path: Path, style: str, apart: bool
) -> None:
    import torch

    engine = loaded(Lora("style", str(write(tmp_path / "lora", style))), apart=apart)
    plain = predicted(engine)
    engine.model.adapted.use(USE)
    assert torch.equal(predicted(engine), reference(weights, apart))
    engine.model.adapted.use(())
    assert torch.equal(predicted(engine), plain), "nothing is left of it"


def test_adapters_change_between_tasks_and_clips_are_what_they_are_alone(
    loaded: Callable[..., Any], tmp_path: Path, finish: Callable[[Any], Any]
) -> None:
    import torch

    one, two = (str(write(tmp_path / f"lora{seed}", "original", seed)) for seed in (1, 2))
    loras = (Lora("style", one), Lora("other", high=two))
    engine = loaded(*loras)
    specs = [
        replace(SPEC, loras=uses, steps=3)
        for uses in ((), USE, (LoraUse("style", 0.75), LoraUse("other", 1.0)), (), (LoraUse("style", 0.3),))
    ]
    clips = [finish(engine.begin(spec, None)) for spec in specs]
    alone = [finish(loaded(*loras).begin(spec, None)) for spec in specs[:3]]
    assert all(torch.equal(a, b) for a, b in zip(clips, alone, strict=False))
    assert torch.equal(clips[3], clips[0]) and not torch.equal(clips[4], clips[1])
    checkpoint = engine.begin(specs[1], None)
    checkpoint.advance()
    kept = checkpoint.snapshot()
    finish(engine.begin(specs[0], None))
    assert torch.equal(finish(engine.resume(specs[1], kept)), clips[1])


def test_fp8_takes_adapters_both_ways(loaded: Callable[..., Any], weights: Path, tmp_path: Path) -> None:
    lora = Lora("style", str(write(tmp_path / "lora", "original")))
    exact = loaded(lora)
    exact.model.adapted.use(USE)
    wanted, distance = predicted(exact), {}
    for apart in (False, True):
        engine = loaded(lora, fp8=True, apart=apart)
        plain = predicted(engine)
        engine.model.adapted.use(USE)
        distance[apart] = float((predicted(engine) - wanted).norm() / wanted.norm())
        engine.model.adapted.use(())
        assert (predicted(engine) == plain).all()
    assert max(distance.values()) < 0.1, distance


def test_several_ranks_merge_what_each_holds(
    loaded: Callable[..., Any], weights: Path, tmp_path: Path, finish: Callable[[Any], Any]
) -> None:
    from dataclasses import asdict

    import torch

    lora = write(tmp_path / "lora", "original")
    spec = replace(SPEC, loras=USE, steps=2)
    engine = loaded(Lora("style", str(lora)))
    wanted = finish(engine.begin(spec, None))
    layouts = {"fsdp": ({"ulysses": 2, "fsdp": True}, False), "apart": ({"ulysses": 2}, True)}
    tasks = [
        {
            "name": name,
            "weights": str(weights),
            "parallel": parallel,
            "spec": asdict(spec),
            "loras": [asdict(Lora("style", str(lora)))],
            "loras_apart": apart,
        }
        for name, (parallel, apart) in layouts.items()
    ]
    run_gang(tmp_path, 2, tasks)
    seen = Seen(tmp_path, 2)
    assert all(torch.equal(latents, wanted) for latents in seen.latents("fsdp"))
    apart = finish(loaded(Lora("style", str(lora)), apart=True).begin(spec, None))
    assert all(torch.equal(latents, apart) for latents in seen.latents("apart"))


def test_what_does_not_fit_is_refused_and_changes_nothing(loaded: Callable[..., Any], tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    good = {f"blocks.0.self_attn.q.lora_{part}.weight": torch.ones(4, 64) for part in ("down",)}
    for name, wrong in {
        "half": good,
        "elsewhere": {"blocks.9.self_attn.q.lora_down.weight": torch.ones(4, 64)},
        "norms": {
            **good,
            "blocks.0.self_attn.q.lora_up.weight": torch.ones(64, 4),
            "blocks.0.norm3.diff": torch.ones(64),
        },
    }.items():
        save_file(wrong, tmp_path / name)
    loras = [Lora(name, str(tmp_path / name)) for name in ("half", "elsewhere", "norms", "nowhere")]
    engine = loaded(*loras)
    plain = predicted(engine)
    for name in (*(lora.name for lora in loras), "undeclared"):
        with pytest.raises(Unrenderable, match=name):
            engine.begin(replace(SPEC, loras=(LoraUse(name, 1.0),)), None)
    assert np.array_equal(predicted(engine), plain)


def test_eulers_steps_are_those_of_the_flow(single_thread: None, weights: Path) -> None:
    import torch

    from turnout.engines.wan.library_classes import UniPCMultistepScheduler
    from turnout.engines.wan.solver import Solver

    config = UniPCMultistepScheduler.load_config(weights / "scheduler")
    solver = Solver(config, 4, 5.0, torch.device("cpu"), euler=True)
    latents = start = torch.randn(1, 4, 2, 4, 4)
    velocity = torch.randn_like(start)
    for t in solver.timesteps:
        latents = solver.step(velocity, t, latents)
    sigmas = solver._inner.sigmas
    torch.testing.assert_close(latents, start + (sigmas[-1] - sigmas[0]) * velocity, rtol=1e-4, atol=1e-5)
