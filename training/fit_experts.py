"""Trains the denoising experts and the text encoder on cached latents (flow matching)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from torch import nn
from transformers import UMT5EncoderModel

from training.fit_vae import follow
from training.graph import own_stream, recorded
from training.muon import Muon
from training.recipe import SHIFT, Recipe
from training.words import END, LONGEST, word_ids

Log = Callable[[str], None]
WARM_UP = 10
TRUNK_SHIFT = 4.0
PADDINGS = (96, 128, 226, 512)  # lengths to which a server may pad the text


class PaddedCross:
    """Cross-attention as if the text were padded with zeros up to any length, at the price of one key.

    Wan pads text with zero vectors and does not mask them, so they take part in attention. All of them are
    equal; n of them weigh as much as one whose score is raised by log n. That raise travels as one more feature
    of the keys, which meets a one in every query: kernels that take no mask are the fast ones.
    """

    def __init__(self, device: torch.device | str):
        self.bias = torch.zeros(LONGEST + 1, device=device)
        self.pad_to(512)

    def pad_to(self, length: int) -> None:
        self.bias[-1] = math.log(length - LONGEST)

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        query = attn.norm_q(attn.to_q(hidden_states)).unflatten(2, (attn.heads, -1)).transpose(1, 2)
        key = attn.norm_k(attn.to_k(encoder_hidden_states)).unflatten(2, (attn.heads, -1)).transpose(1, 2)
        value = attn.to_v(encoder_hidden_states).unflatten(2, (attn.heads, -1)).transpose(1, 2)
        width = query.shape[-1]
        extra = -(-(width + 1) // 8) * 8 - width  # kernels want widths in eights
        raised = (self.bias * width**0.5).to(query.dtype).view(1, 1, -1, 1).expand(*key.shape[:3], 1)
        key = torch.cat([key.to(query.dtype), F.pad(raised, (0, extra - 1))], dim=-1)
        query = torch.cat([query, F.pad(torch.ones_like(query[..., :1]), (0, extra - 1))], dim=-1)
        value = F.pad(value.to(query.dtype), (0, extra))
        seen = F.scaled_dot_product_attention(query, key, value, scale=width**-0.5)[..., :width]
        return attn.to_out[0](seen.transpose(1, 2).flatten(2))


@dataclass(frozen=True, slots=True)
class Stage:
    """Which part of the way from noise to picture an expert learns, and whether it gets first frames."""

    name: str
    low: float
    high: float
    shift: float
    lr: float
    first_frames: float = 0.0
    level_share: float = 0.5
    last_lr: float = 0.02


def rate_of_stage(done: float, peak: float, level_share: float, last: float) -> float:
    """Learning rate when `done` of a stage's time has passed: a short rise, a level stretch, a cosine down."""
    rise = min(1.0, done / 0.03 + 0.05)
    fall = min(1.0, max(0.0, done - level_share) / (1 - level_share))
    return peak * rise * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * fall)))


def prepare(model: WanTransformer3DModel, cross: PaddedCross) -> None:
    for block in model.blocks:
        block.attn2.set_processor(cross)


def _through(
    block: nn.Module,
    x: torch.Tensor,
    said: torch.Tensor,
    times: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> torch.Tensor:
    each = x.shape[1] // times.shape[1]
    return block(x, said, times.unsqueeze(2).expand(-1, -1, each, -1, -1).flatten(1, 2), (cos, sin))


def _close(model: WanTransformer3DModel, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    frames = time.shape[1]
    shift, scale = (model.scale_shift_table.unsqueeze(0) + time.unsqueeze(2)).chunk(2, dim=2)
    normed = model.norm_out(x.float()).unflatten(1, (frames, -1))
    x = model.proj_out((normed * (1 + scale) + shift).type_as(x))
    side = math.isqrt(x.shape[2])
    return (
        x.unflatten(2, (side, side))
        .unflatten(4, (2, 2, -1))
        .permute(0, 6, 1, 2, 4, 3, 5)
        .flatten(5)
        .flatten(3, 4)
    )


class Speeds:
    """What an expert says of square pictures, with one timestep a latent frame [B, t].

    The same as calling the expert with a timestep a token; but what depends on time alone is computed for five frames,
    not for 320 tokens.
    """

    def __init__(self, model: WanTransformer3DModel, *, compiled: bool):
        self._model = model
        self._through = torch.compile(_through, dynamic=False, fullgraph=True) if compiled else _through
        self._close = torch.compile(_close, dynamic=False, fullgraph=True) if compiled else _close

    def __call__(self, noisy: torch.Tensor, timestep: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        model = self._model
        cos, sin = model.rope(noisy)
        x = model.patch_embedding(noisy).flatten(2).transpose(1, 2).contiguous()
        time, times, said, _ = model.condition_embedder(
            timestep.flatten(), states, timestep_seq_len=timestep.shape[1]
        )
        times = times.unflatten(2, (6, -1))
        for block in model.blocks:
            x = self._through(block, x, said, times, cos, sin)
        return self._close(model, x, time)


def embed(text: UMT5EncoderModel, ids: torch.Tensor) -> torch.Tensor:
    """Text states with zeros after the end mark and in one slot more [B, LONGEST + 1, dim].

    The same as calling `text(ids, mask)`, without the look at the mask that makes the GPU wait.
    """
    mask = ids != 0
    hidden = torch.where(mask, 0.0, -1e4).view(len(ids), 1, 1, -1)
    x = text.shared(ids)
    for block in text.encoder.block:
        own = block.layer[0]
        attention, normed = own.SelfAttention, own.layer_norm(x)
        query, key, value = (
            layer(normed).unflatten(-1, (attention.n_heads, -1)).transpose(1, 2)
            for layer in (attention.q, attention.k, attention.v)
        )
        bias = attention.compute_bias(ids.shape[1], ids.shape[1], device=ids.device)
        scores = (query @ key.transpose(-1, -2)).float() + bias + hidden
        x = x + attention.o((scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2))
        x = block.layer[-1](x)
    return F.pad(text.encoder.final_layer_norm(x) * mask.unsqueeze(-1), (0, 0, 0, 1))


def empty_ids(count: int, device: torch.device | str) -> torch.Tensor:
    ids = torch.zeros(count, LONGEST, dtype=torch.long, device=device)
    ids[:, 0] = word_ids()[END]
    return ids


def _sigmas(stage: Stage, count: int, device: torch.device) -> torch.Tensor:
    """Evenly spread before the shift, so as the steps of sampling are; stratified over the batch."""

    def unshift(s: float) -> float:
        return s / (stage.shift - (stage.shift - 1) * s)

    low, high = unshift(stage.low), unshift(stage.high)
    spread = (torch.arange(count, device=device) + torch.rand(count, device=device)) / count
    u = low + (high - low) * spread
    return (stage.shift * u / (1 + (stage.shift - 1) * u)).clamp(1e-3, 1)


def fit_expert(
    model: WanTransformer3DModel,
    text: UMT5EncoderModel,
    learn_text: bool,
    latents: torch.Tensor,
    ids: torch.Tensor,
    drawn: int,
    stage: Stage,
    recipe: Recipe,
    seconds: float,
    compiled: bool,
    graphed: bool,
    log: Log,
    checkpoint: Callable[[nn.Module, nn.Module], None],
) -> tuple[WanTransformer3DModel, UMT5EncoderModel]:
    """Trains for `seconds`; returns the running averages of expert and text encoder. Rows from `drawn` on are pictures."""
    device = latents.device
    cross = PaddedCross(device)
    prepare(model, cross)
    ema, text_ema = deepcopy(model).requires_grad_(False), deepcopy(text).requires_grad_(False)
    text.requires_grad_(learn_text)
    matrices = [w for n, w in model.blocks.named_parameters() if w.ndim == 2]
    chosen = {id(w) for w in matrices}
    weights = [*model.parameters(), *(text.parameters() if learn_text else ())]
    rest = [w for w in model.parameters() if id(w) not in chosen]
    lr, text_lr = torch.tensor(1e-4, device=device), torch.tensor(1e-4, device=device)
    muon = Muon(matrices)
    on_gpu = device.type == "cuda"
    groups = [{"params": rest, "lr": lr}]
    if learn_text:
        groups.append({"params": list(text.parameters()), "lr": text_lr})
    adam = torch.optim.AdamW(
        groups, lr=lr, betas=(0.9, 0.98), weight_decay=0.01, fused=on_gpu, capturable=on_gpu, foreach=False
    )
    speak = torch.compile(embed, dynamic=False) if compiled else embed
    speeds = Speeds(model, compiled=compiled)
    sum_of_losses = torch.zeros((), device=device)

    def train() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = _loss(speeds, text, speak, latents, ids, drawn, stage, recipe)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
        muon.step(lr)
        for weight in weights:
            weight.grad = None
        follow(ema, model, recipe.ema)
        if learn_text:
            follow(text_ema, text, recipe.ema)
        sum_of_losses.add_(loss.detach())

    began, step, counted, saved = time.monotonic(), 0, 0, time.monotonic()
    again, warm = train, 0.0
    with own_stream(device):
        while (done := (time.monotonic() - began) / seconds) < 1.0:
            lr.fill_(rate_of_stage(done, stage.lr, stage.level_share, stage.last_lr))
            text_lr.copy_(lr * recipe.text_share)
            cross.pad_to(PADDINGS[step % len(PADDINGS)])
            again()
            step += 1
            if step == WARM_UP:
                log(f"{stage.name}: first {step} steps took {time.monotonic() - began:.1f} s")
                if graphed and on_gpu:
                    again = recorded(train, log)
                _copy(ema, model)  # the average starts here: what came before was chance
                if learn_text:
                    _copy(text_ema, text)
                sum_of_losses.zero_()
                counted, warm = step, time.monotonic()
            if step % 20 == 0 and on_gpu:
                torch.cuda.synchronize()  # replays are queued without end otherwise, and the clock says nothing
            if step % 500 == 0:
                mean = sum_of_losses.item() / (step - counted)
                sum_of_losses.zero_()
                counted = step
                pace = (step - WARM_UP) / (time.monotonic() - warm)
                log(
                    f"{stage.name} step {step} done {done:.2f} loss {mean:.4f} {pace:.1f} steps/s x{recipe.batch}"
                )
                if time.monotonic() - saved > 60:
                    checkpoint(ema, text_ema)
                    saved = time.monotonic()
    log(f"{stage.name}: {step} steps in {time.monotonic() - began:.0f} s")
    return ema, text_ema


@torch.no_grad()
def _copy(ema: nn.Module, model: nn.Module) -> None:
    follow(ema, model, 0.0)


def _loss(
    speeds: Speeds,
    text: UMT5EncoderModel,
    speak: Callable[[UMT5EncoderModel, torch.Tensor], torch.Tensor],
    latents: torch.Tensor,
    ids: torch.Tensor,
    drawn: int,
    stage: Stage,
    recipe: Recipe,
) -> torch.Tensor:
    device, count = latents.device, recipe.batch
    rows = torch.randint(len(latents), (count,), device=device)
    clean = latents[rows].float().transpose(1, 2)  # [B, 16, t, h, w]
    said = ids[rows, torch.randint(ids.shape[1], (count,), device=device)].long()
    silent = torch.rand(count, 1, device=device) < recipe.empty_share
    said = torch.where(silent, empty_ids(1, device), said)
    states = speak(text, said)

    sigma = _sigmas(stage, count, device)
    noise = torch.randn_like(clean)
    level = sigma.view(-1, 1, 1, 1, 1)
    learned = torch.ones_like(clean[:, :1])
    if stage.first_frames:
        given = (torch.rand(count, device=device) < stage.first_frames) | (rows >= drawn)
        given = given.view(-1, 1, 1, 1, 1)
        free = torch.ones_like(learned)
        free[:, :, 0] = 0
        learned = torch.where(given, free, learned)
    level = level * learned
    noisy = (1 - level) * clean + level * noise
    speed = speeds(noisy, (level * 1000)[:, 0, :, 0, 0], states)
    error = (speed.float() - (noise - clean)).square() * learned
    return error.mean() / learned.mean()


OVERLAP = 0.02  # experts learn a little past the boundary


def stages(recipe: Recipe, boundary: float) -> dict[str, Stage]:
    """The trunk learns the whole way, at times with a first frame given, and then settles; the experts branch off it."""
    return {
        "trunk": Stage("trunk", 0.0, 1.0, TRUNK_SHIFT, recipe.lr, first_frames=0.3, last_lr=0.3),
        "settle": Stage("settle", 0.0, 1.0, TRUNK_SHIFT, recipe.settle_lr, first_frames=0.3, level_share=0.1),
        "high": Stage("high", boundary - OVERLAP, 1.0, SHIFT, recipe.branch_lr, level_share=0.1),
        "low": Stage("low", 0.0, boundary + OVERLAP, SHIFT, recipe.branch_lr, level_share=0.1),
        "ti2v": Stage("ti2v", 0.0, 1.0, TRUNK_SHIFT, recipe.branch_lr, first_frames=0.5, level_share=0.1),
    }
