"""Training's fast paths compute what the published networks compute, and what is exported loads again."""

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from diffusers.pipelines.wan.pipeline_wan import WanPipeline
from training.captions import prompts
from training.export import export, latent_rgb
from training.fit_experts import PaddedCross, Speeds, embed, prepare
from training.muon import Muon
from training.recipe import MINI
from training.sample import Sampler
from training.whole import WholeVae

from training import words


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def test_whole_clip_vae_equals_the_chunked_one():
    vae: Any = MINI.vae().eval()
    for name, weight in vae.named_parameters():
        if "gamma" in name:
            weight.data.uniform_(0.5, 1.5)
    frames, latents = torch.rand(2, 3, 9, 32, 48) * 2 - 1, torch.randn(2, 16, 3, 4, 6)
    with torch.no_grad():
        mean, logvar = WholeVae(vae).encode(frames.transpose(1, 2))
        chunked = vae.encode(frames).latent_dist
        shown = WholeVae(vae).decode(latents.transpose(1, 2)).transpose(1, 2).clamp(-1, 1)
        torch.testing.assert_close(mean.transpose(1, 2), chunked.mean, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(logvar.transpose(1, 2), chunked.logvar, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(shown, vae.decode(latents).sample, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("length", [96, 512])
def test_one_raised_key_stands_for_all_the_padding(length):
    model, text = MINI.expert().eval(), MINI.text().eval()
    ids = words.encode([said for _, said in prompts(3, 1)]).long()
    noisy, when = torch.randn(3, 16, 2, 4, 4), torch.full((3,), 700.0)
    with torch.no_grad():
        mask = ids != 0
        states = text(ids, mask.long()).last_hidden_state * mask.unsqueeze(-1)
        padded = F.pad(states, (0, 0, 0, length - words.LONGEST))
        published = model(noisy, when, padded, return_dict=False)[0]
        cross = PaddedCross("cpu")
        cross.pad_to(length)
        prepare(model, cross)
        torch.testing.assert_close(embed(text, ids)[:, :-1], states, atol=1e-4, rtol=1e-3)
        ours = model(noisy, when, embed(text, ids), return_dict=False)[0]
        torch.testing.assert_close(ours, published, atol=1e-4, rtol=1e-3)


def test_a_timestep_a_frame_says_what_a_timestep_a_token_says():
    model = MINI.expert().eval()
    noisy, states = torch.randn(2, 16, 3, 8, 8), torch.randn(2, 7, MINI.text_dim)
    when = torch.tensor([[0.0, 700.0, 700.0], [300.0, 300.0, 300.0]])
    with torch.no_grad():
        published = model(noisy, when.repeat_interleave(16, dim=1), states, return_dict=False)[0]
        ours = Speeds(model, compiled=False)(noisy, when, states)
    torch.testing.assert_close(ours, published, atol=1e-5, rtol=1e-4)


def test_exported_models_draw_the_same_clip_in_diffusers(tmp_path):
    vae, text, high, low = MINI.vae(), MINI.text(), MINI.expert(), MINI.expert()
    for model in (vae, text, high, low):
        model.half().float().eval()
    mean, std = [0.1] * 16, [0.9] * 16
    ours = Sampler(vae, text, high, low, torch.tensor(mean), torch.tensor(std))
    said = [text for _, text in prompts(1, 2)]
    expected = ours.latents(said, 5, 32, steps=4, guidance=3.0, shift=5.0, seed=1)
    preview = latent_rgb(torch.randn(2, 2, 16, 4, 4), torch.rand(2, 5, 3, 32, 32))
    export(tmp_path, vae, mean, std, text, high, low, preview)

    pipe: Any = WanPipeline.from_pretrained(tmp_path, dtype=torch.float32, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    noise = torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    drawn = pipe(said, height=32, width=32, num_frames=5, num_inference_steps=4, guidance_scale=3.0, latents=noise,
                 max_sequence_length=512, output_type="latent").frames  # fmt: skip
    torch.testing.assert_close(drawn, expected, atol=2e-3, rtol=1e-2)
    assert pipe.config.boundary_ratio == 0.875
    assert len(json.loads((tmp_path / "latent_rgb.json").read_text())["matrix"]) == 16


def test_muon_fits_a_linear_map():
    weight = torch.nn.Parameter(torch.zeros(8, 12))
    inputs = torch.randn(64, 12)
    goal, muon, losses = inputs @ torch.randn(12, 8), Muon([weight]), []
    for _ in range(150):
        loss = (inputs @ weight.T - goal).square().mean()
        loss.backward()
        muon.step(torch.tensor(0.05))
        weight.grad = None
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
