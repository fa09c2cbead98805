"""Trains the denoising experts and the text encoder on cached latents (flow matching)."""

from __future__ import annotations

import contextlib
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

from training.fit_vae import follow, profile, rate
from training.muon import Muon
from training.recipe import SHIFT, Recipe
from training.words import END, LONGEST, word_ids

Log = Callable[[str], None]
WARM_UP = 10
TRUNK_SHIFT = 4.0
PADDINGS = (64, 128, 226, 512)  # lengths to which a server may pad the text


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


def prepare(model: WanTransformer3DModel, cross: PaddedCross) -> None:
    for block in model.blocks:
        block.attn2.set_processor(cross)


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
    stage: Stage,
    recipe: Recipe,
    seconds: float,
    compiled: bool,
    graphed: bool,
    log: Log,
    checkpoint: Callable[[nn.Module, nn.Module], None],
) -> tuple[WanTransformer3DModel, UMT5EncoderModel]:
    """Trains for `seconds`; returns the running averages of expert and text encoder."""
    device = latents.device
    cross = PaddedCross(device)
    prepare(model, cross)
    ema, text_ema = deepcopy(model).requires_grad_(False), deepcopy(text).requires_grad_(False)
    text.requires_grad_(learn_text)
    matrices = [w for n, w in model.blocks.named_parameters() if w.ndim == 2]
    chosen = {id(w) for w in matrices}
    weights = [*model.parameters(), *(text.parameters() if learn_text else ())]
    rest = [w for w in weights if id(w) not in chosen]
    lr = torch.tensor(1e-4, device=device)
    muon = Muon(matrices)
    on_gpu = device.type == "cuda"
    adam = torch.optim.AdamW(
        rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.01, fused=on_gpu, capturable=on_gpu, foreach=False
    )
    speak = torch.compile(embed, dynamic=False) if compiled else embed
    if compiled:
        model.compile_repeated_blocks(fullgraph=True, dynamic=False)
    sum_of_losses = torch.zeros((), device=device)

    def train() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = _loss(model, text, speak, latents, ids, stage, recipe)
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
    while (done := (time.monotonic() - began) / seconds) < 1.0:
        lr.fill_(rate(done, stage.lr))
        cross.pad_to(PADDINGS[step % len(PADDINGS)])
        again()
        step += 1
        if step == WARM_UP:
            log(f"{stage.name}: first {step} steps took {time.monotonic() - began:.1f} s")
            if on_gpu:
                with contextlib.suppress(Exception):  # telling where time goes is worth no failed run
                    profile(train, log)
            if graphed and on_gpu:
                again = _captured(train, log)
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


def _captured(train: Callable[[], None], log: Log) -> Callable[[], None]:
    """A whole step as one CUDA graph, or `train` itself where that cannot be recorded.

    Issuing the step's two thousand kernels took 64 ms; running them, 27 ms.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            for _ in range(3):
                train()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            train()
    except RuntimeError as error:
        torch.cuda.synchronize()
        log(f"no CUDA graph: {str(error)[:300]}")
        return train
    log("recorded the step as a CUDA graph")
    return graph.replay


def _loss(
    model: WanTransformer3DModel,
    text: UMT5EncoderModel,
    speak: Callable[[UMT5EncoderModel, torch.Tensor], torch.Tensor],
    latents: torch.Tensor,
    ids: torch.Tensor,
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
    timestep = sigma * 1000
    learned = torch.ones_like(clean[:, :1])
    if stage.first_frames:
        given = (torch.rand(count, device=device) < stage.first_frames).view(-1, 1, 1, 1, 1)
        free = torch.ones_like(learned)
        free[:, :, 0] = 0
        learned = torch.where(given, free, learned)
        level = level * learned
        timestep = (level * 1000)[:, 0, :, ::2, ::2].flatten(1)
    noisy = (1 - level) * clean + level * noise
    speed = model(hidden_states=noisy, timestep=timestep, encoder_hidden_states=states, return_dict=False)[0]
    error = (speed.float() - (noise - clean)).square() * learned
    return error.mean() / learned.mean()


OVERLAP = 0.02  # experts learn a little past the boundary


def stages(recipe: Recipe, boundary: float) -> dict[str, Stage]:
    """The trunk learns the whole way, at times with a first frame given; the experts branch off it."""
    return {
        "trunk": Stage("trunk", 0.0, 1.0, TRUNK_SHIFT, recipe.lr, first_frames=0.35),
        "high": Stage("high", boundary - OVERLAP, 1.0, SHIFT, recipe.branch_lr),
        "low": Stage("low", 0.0, boundary + OVERLAP, SHIFT, recipe.branch_lr),
        "ti2v": Stage("ti2v", 0.0, 1.0, TRUNK_SHIFT, recipe.branch_lr, first_frames=0.5),
    }
