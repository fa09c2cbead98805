"""What a caption means, as classes; and the text encoder taught to tell them before any picture is shown to the experts.

Learning words from the error of a picture is slow: the classes say at once what a sentence is about. `Reader` asks the
text states the way the experts do, by attention with linear keys and values, so that what it finds there they can find.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from transformers import UMT5EncoderModel

from training.captions import is_same
from training.fit_experts import embed, rate_of_stage
from training.graph import own_stream, recorded
from training.scenes import SCENES
from training.world import BACKGROUNDS, COLOURS, MOTIONS, PACES, PLACES, SHAPES, SIZES, Clip

Log = Callable[[str], None]
NOTHING = -100  # what cannot be asked of a clip
KINDS = ("1", "2", "3", "2 alike", "3 alike", "picture", *SCENES)
OF_CLIP: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "ground": tuple(BACKGROUNDS),
    "ground2": tuple(BACKGROUNDS),
    "fade": ("", "down", "right"),
    "tone": ("", *COLOURS),
}
OF_THING: dict[str, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "shape": SHAPES,
    "motion": MOTIONS,
    "size": tuple(SIZES),
    "pace": tuple(PACES),
    "place": ("", *PLACES),
    "colour2": ("", *COLOURS),
}
FIELDS = [*OF_CLIP.items(), *((f"{name} {k}", values) for k in "abc" for name, values in OF_THING.items())]
_WIDEST = max(len(values) for _, values in FIELDS)


def labels(clip: Clip) -> list[int]:
    """A class for each of FIELDS."""
    alike = " alike" if is_same(clip) else ""
    kind = clip.scene or ("picture" if clip.camera else f"{len(clip.things)}{alike}")
    free = not clip.scene and not clip.camera
    out = [
        KINDS.index(kind),
        OF_CLIP["ground"].index(clip.backdrop.first) if free else NOTHING,
        OF_CLIP["ground2"].index(clip.backdrop.second) if free else NOTHING,
        OF_CLIP["fade"].index(clip.backdrop.fade) if free else NOTHING,
        OF_CLIP["tone"].index(clip.tone) if clip.tone else NOTHING,
    ]
    for k in range(3):
        if k < len(clip.things):
            thing = clip.things[k]
            out += [values.index(getattr(thing, name)) for name, values in OF_THING.items()]
        elif k == 0 and clip.camera:
            out += [MOTIONS.index(clip.camera) if name == "motion" else NOTHING for name in OF_THING]
        else:
            out += [NOTHING] * len(OF_THING)
    return out


class Reader(nn.Module):
    """Answers each of FIELDS from text states [B, L, dim]."""

    def __init__(self, dim: int, heads: int = 8):
        super().__init__()
        self.ask = nn.Parameter(torch.randn(len(FIELDS), dim) * dim**-0.5)
        self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.answer = nn.Parameter(torch.randn(len(FIELDS), dim, _WIDEST) * dim**-0.5)
        self.heads = heads
        allowed = torch.zeros(len(FIELDS), _WIDEST)
        for i, (_, values) in enumerate(FIELDS):
            allowed[i, len(values) :] = -1e4
        self.register_buffer("allowed", allowed)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Scores [B, fields, classes]."""
        count = len(states)
        query = self.ask.unflatten(1, (self.heads, -1)).transpose(0, 1).expand(count, -1, -1, -1)
        key = self.key(states).unflatten(2, (self.heads, -1)).transpose(1, 2)
        value = self.value(states).unflatten(2, (self.heads, -1)).transpose(1, 2)
        scores = (query.to(key.dtype) @ key.transpose(-1, -2)).float()
        scores = scores * query.shape[-1] ** -0.5 + torch.where(mask, 0.0, -1e4).view(count, 1, 1, -1)
        seen = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
        return torch.einsum("bfd,fdc->bfc", seen.float(), self.answer) + self.allowed


def _right(scores: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    return (scores.argmax(-1) == goal) | (goal == NOTHING)


@torch.no_grad()
def told(text: UMT5EncoderModel, reader: Reader, ids: torch.Tensor) -> torch.Tensor:
    """Which class of each field captions [N, LONGEST] mean, to this encoder [N, fields]."""
    return torch.cat(
        [reader(embed(text, part.long())[:, :-1], part != 0).argmax(-1) for part in ids.split(512)]
    )


def fit_text(
    text: UMT5EncoderModel,
    reader: Reader,
    ids: torch.Tensor,
    goals: torch.Tensor,
    lr_peak: float,
    batch: int,
    seconds: float,
    compiled: bool,
    graphed: bool,
    log: Log,
) -> None:
    """Trains both in place for `seconds` on captions [N, wordings, LONGEST] and classes [N, fields]."""
    device = ids.device
    on_gpu = device.type == "cuda"
    weights = [*text.parameters(), *reader.parameters()]
    lr = torch.tensor(1e-4, device=device)
    adam = torch.optim.AdamW(
        weights, lr=lr, betas=(0.9, 0.98), weight_decay=0.01, fused=on_gpu, capturable=on_gpu, foreach=False
    )
    speak = torch.compile(embed, dynamic=False) if compiled else embed
    seen = torch.zeros((), device=device)
    right = torch.zeros((), device=device)

    def train() -> None:
        rows = torch.randint(len(ids), (batch,), device=device)
        said = ids[rows, torch.randint(ids.shape[1], (batch,), device=device)].long()
        goal = goals[rows].long()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            scores = reader(speak(text, said)[:, :-1], said != 0)
        loss = F.cross_entropy(scores.flatten(0, 1), goal.flatten(), ignore_index=NOTHING, reduction="none")
        loss = loss.sum() / batch / 8
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
        for weight in weights:
            weight.grad = None
        seen.copy_(loss.detach())
        hits = _right(scores, goal)  # slices only: a CUDA graph takes no index from the host
        right.lerp_((hits[:, :2].all(-1) & hits[:, 5:8].all(-1)).float().mean(), 0.02)

    began, step = time.monotonic(), 0
    again = train
    with own_stream(device):
        while (done := (time.monotonic() - began) / seconds) < 1.0:
            lr.fill_(rate_of_stage(done, lr_peak, 0.3, 0.02))
            again()
            step += 1
            if step == 10 and graphed and on_gpu:
                log(f"text: first {step} steps took {time.monotonic() - began:.1f} s")
                again = recorded(train, log)
            if step % 20 == 0 and on_gpu:
                torch.cuda.synchronize()
            if step % 500 == 0 or step == 100:
                log(f"text step {step} done {done:.2f} loss {seen.item():.3f} right {right.item():.3f}")
    log(
        f"text: {step} steps in {time.monotonic() - began:.0f} s, loss {seen.item():.3f} right {right.item():.3f}"
    )
