"""Trains the VAE on drawn clips, measures it, and turns clips into latents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan

from training.draw import Layer, Packed, draw, layer
from training.graph import own_stream, recorded
from training.pictures import any_shot, film
from training.recipe import Phase, Recipe
from training.whole import WholeVae
from training.world import SIDE

Log = Callable[[str], None]
WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Course:
    """A stage of VAE training; `settled` says how far the loss has already moved from MSE to sharpness."""

    phases: tuple[Phase, ...]
    lr: float
    settled: float


def courses(recipe: Recipe) -> dict[str, Course]:
    """From nothing; all of it further, twice; the decoder alone further, which leaves latents and experts valid."""
    full = replace(recipe.vae_phases[-1], share=1.0)
    return {
        "vae": Course(recipe.vae_phases, recipe.vae_lr, 0.0),
        "polish": Course(recipe.vae_phases, 0.5 * recipe.vae_lr, 1.0),
        "widen": Course((full,), 0.6 * recipe.vae_lr, 1.0),
        "decoder": Course((full,), 0.4 * recipe.vae_lr, 1.0),
    }


def rate(done: float, peak: float, floor: float = 0.02) -> float:
    """Learning rate when `done` of the stage's time has passed: a short rise, half of it level, half a cosine."""
    rise = min(1.0, done / 0.03 + 0.05)
    fall = min(1.0, max(0.0, done - 0.5) / 0.5)
    return peak * rise * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * fall)))


@torch.no_grad()
def follow(ema: torch.nn.Module, model: torch.nn.Module, decay: float) -> None:
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)


def _scene(
    frames: torch.Tensor, near: torch.Tensor, dice: torch.Tensor, coarse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames in -1..1 and nearness. Some clips get colours no palette has, some a mottled light, so that the VAE
    can show more than the data holds; `dice` [N, 7] and `coarse` [N, 3, 6, 6] decide which and how."""
    side = frames.shape[-1]
    swap = dice[:, 0].view(-1, 1, 1, 1, 1)
    gain, shift = dice[:, 1:4].view(-1, 1, 3, 1, 1), dice[:, 4:7].view(-1, 1, 3, 1, 1)
    tinted = frames * gain + (1 - gain) * shift
    mottle = F.interpolate(coarse, size=(side, side), mode="bilinear", align_corners=False).unsqueeze(1)
    frames = torch.where(swap < 0.2, tinted, torch.where(swap > 0.9, (frames + mottle) / 2, frames))
    return frames * 2 - 1, near


def _distance(out: torch.Tensor, x: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared error, and absolute error of pixels and edges; things and what surrounds them count sevenfold."""
    weight = 1 + 6 * near
    weight = torch.cat([2 * weight[:, :1], weight[:, 1:]], dim=1)  # nothing before frame 0 helps to draw it
    error, share = out - x, 1 / weight.mean()
    mse = (weight * error.square()).mean()
    crisp = (weight * error.abs()).mean()
    crisp = crisp + (weight[..., 1:] * error.diff(dim=-1).abs()).mean()
    crisp = crisp + (weight[..., 1:, :] * error.diff(dim=-2).abs()).mean()
    return mse * share, crisp * share


def fit_vae(
    vae: AutoencoderKLWan,
    clips: Packed,
    pictures: torch.Tensor,
    course: Course,
    ema_decay: float,
    seconds: float,
    compiled: bool,
    graphed: bool,
    log: Log,
    checkpoint: Callable[[AutoencoderKLWan], None],
) -> AutoencoderKLWan:
    """Trains the weights that want gradients for `seconds` and returns the running average of all."""
    device = clips.things.device
    fast = torch.bfloat16 if device.type == "cuda" else torch.float32
    whole = WholeVae(vae, compiled=compiled)
    ema = deepcopy(vae).requires_grad_(False)
    learned = [w for w in vae.parameters() if w.requires_grad]
    on_gpu = device.type == "cuda"
    lr, sharp, kl_weight = (torch.zeros((), device=device) for _ in range(3))
    optimizer = torch.optim.AdamW(
        learned, lr=lr, betas=(0.9, 0.98), weight_decay=1e-4, fused=on_gpu, capturable=on_gpu, foreach=False
    )
    scene = torch.compile(_scene, dynamic=False) if compiled else _scene
    paint = torch.compile(layer, dynamic=False) if compiled else layer
    distance = torch.compile(_distance, dynamic=False) if compiled else _distance
    last = torch.zeros(2, device=device)
    began, step, saved, until = time.monotonic(), 0, time.monotonic(), 0.0

    def train(phase: Phase) -> None:
        x, near = _batch(clips, pictures, phase, paint, scene)
        mean, logvar = whole.encode(x.to(fast))
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        mse, crisp = distance(whole.decode(z.to(fast)), x, near)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
        (mse + 0.2 * sharp * crisp + kl_weight * kl).backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        for weight in learned:
            weight.grad = None
        last.copy_(torch.stack([mse.detach(), kl.detach()]))

    for phase in course.phases:
        until += phase.share
        phase_step, phase_began = 0, time.monotonic()
        again = partial(train, phase)
        with own_stream(device):
            while (done := (time.monotonic() - began) / seconds) < min(until, 1.0):
                moved = max(done, course.settled)
                lr.fill_(rate(done, course.lr))
                sharp.fill_(min(1.0, max(0.0, (moved - 0.1) / 0.5)))
                kl_weight.fill_(1e-5 + 3e-4 * min(1.0, moved / 0.6))
                again()
                follow(ema, vae, min(ema_decay, (1 + step) / (10 + step)))
                step, phase_step = step + 1, phase_step + 1
                if phase_step == WARM_UP:
                    log(
                        f"vae {phase.side}px x{phase.frames}: mse {last[0].item():.4f}, "
                        f"first {WARM_UP} steps took {time.monotonic() - phase_began:.1f} s"
                    )
                    if graphed and on_gpu:
                        again = recorded(again, log)
                    phase_began = time.monotonic()
                if step % 20 == 0 and on_gpu:
                    torch.cuda.synchronize()  # replays are queued without end otherwise
                if step % 400 == 0 or step in (100, 200):
                    mse, kl = last.tolist()
                    pace = max(1, phase_step - WARM_UP) / (time.monotonic() - phase_began)
                    log(
                        f"vae step {step} done {done:.2f} mse {mse:.5f} kl {kl:.2f} "
                        f"{pace:.1f} steps/s x{phase.batch}"
                    )
                    if time.monotonic() - saved > 60:
                        checkpoint(ema)
                        saved = time.monotonic()
    log(f"vae: {step} steps in {time.monotonic() - began:.0f} s")
    return ema


@torch.no_grad()
def _batch(
    clips: Packed,
    pictures: torch.Tensor,
    phase: Phase,
    paint: Layer,
    scene: Callable[..., tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames in -1..1 and nearness; the first fifth is shots of pictures, in which nothing is near."""
    device = clips.things.device
    filmed = phase.batch // 5
    n = phase.batch - filmed
    chosen = clips[torch.randint(len(clips), (n,), device=device)]
    # A window about the first thing, so that small windows do not show background only.
    middle = chosen.things[:, 0, :2] + chosen.things[:, 0, 2:4] * torch.rand(n, 1, device=device)
    spread = (torch.rand(n, 2, device=device) - 0.5) * phase.side
    origin = (middle + spread - phase.side / 2).clamp(0, SIDE - phase.side).round()
    frames, near = draw(chosen, phase.frames, phase.side, origin, paint)
    x, near = scene(frames, near, torch.rand(n, 7, device=device), torch.rand(n, 3, 6, 6, device=device))
    if not filmed:
        return x, near
    picked = pictures[torch.randint(len(pictures), (filmed,), device=device)]
    shown = film(picked, any_shot(filmed, device), phase.frames, phase.side, phase.side) * 2 - 1
    return torch.cat([shown, x]), torch.cat([torch.zeros_like(near[:1]).expand(filmed, -1, -1, -1, -1), near])


@torch.no_grad()
def reconstruct(vae: AutoencoderKLWan, frames: torch.Tensor, batch: int = 32) -> torch.Tensor:
    """Frames [N, T, 3, H, W] in 0..1 after a trip through the latents."""
    whole = WholeVae(vae)
    parts = [whole.decode(whole.encode(part * 2 - 1)[0]) for part in frames.split(batch)]
    return (torch.cat(parts) / 2 + 0.5).clamp(0, 1)


def psnr(a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor | None = None) -> float:
    error = (a - b).square()
    mean = error.mean() if weight is None else (error * weight).sum() / weight.expand_as(error).sum()
    return round(float(-10 * torch.log10(mean.clamp_min(1e-10))), 2)


@torch.no_grad()
def encode_all(
    vae: AutoencoderKLWan,
    clips: Packed,
    pictures: torch.Tensor,
    shots: torch.Tensor,
    batch: int,
    compiled: bool,
) -> torch.Tensor:
    """Latent means [N, t, 16, h, w] of clips, then of shots, in half precision; `batch` must divide the number of both."""
    paint = torch.compile(layer, dynamic=False) if compiled else layer
    whole = WholeVae(vae, compiled=compiled)
    fast = torch.bfloat16 if clips.things.is_cuda else torch.float32
    out = []
    for start in range(0, len(clips) - batch + 1, batch):
        frames, _ = draw(clips[slice(start, start + batch)], paint=paint)
        out.append(whole.encode((frames * 2 - 1).to(fast))[0].half())
    for start in range(0, len(shots) - batch + 1, batch):
        each = torch.arange(start, start + batch, device=pictures.device) % len(pictures)
        frames = film(pictures[each], shots[start : start + batch])
        out.append(whole.encode((frames * 2 - 1).to(fast))[0].half())
    return torch.cat(out)
