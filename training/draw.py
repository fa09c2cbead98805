"""Draws packed clips as batches of antialiased signed-distance shapes, on any torch device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from training.world import FRAMES, SHAPES, SIDE, Clip, Part, Thing

_FADES = {"": (0.0, 0.0), "down": (0.0, 1.0), "right": (1.0, 0.0)}
_NEAR_PX = 6.0  # how far around a shape its surroundings reach, for the loss
KINDS = (*SHAPES, "smile")  # what can be drawn; the last only as a part of scenes
SLOTS = 12  # things or parts of one clip
NUMBERS = 23  # of a thing, in the order of `_row`
_HOPS, _SHAKES, _PULSES = 2, 3, 2


@dataclass(frozen=True, slots=True)
class Packed:
    """Clips as numbers: things [N, slots, NUMBERS], shapes [N, slots] (-1: none), grounds [N, 8]."""

    things: torch.Tensor
    shapes: torch.Tensor
    grounds: torch.Tensor

    def to(self, device: torch.device | str) -> Packed:
        return Packed(self.things.to(device), self.shapes.to(device), self.grounds.to(device))

    def __getitem__(self, rows: torch.Tensor | slice) -> Packed:
        return Packed(self.things[rows], self.shapes[rows], self.grounds[rows])

    def __len__(self) -> int:
        return len(self.shapes)


_NOTHING = [-999.0, -999.0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]


def _row(t: Thing) -> list[float]:
    end = t.tint2 or t.tint
    return [t.x, t.y, t.dx, t.dy, t.r0, t.r1, 0.0, t.turn, *t.tint, *end, t.hop, t.orbit, t.phase, t.shake, t.pulse,
            t.cover0, t.cover1, 1.0, 1.0]  # fmt: skip


def _part_row(p: Part) -> list[float]:
    end = p.tint2 or p.tint
    return [p.x, p.y, p.dx, p.dy, p.r, p.r * p.grow, p.angle, p.turn, *p.tint, *end, p.hop, 0.0, 0.0, p.shake, p.pulse,
            p.cover0, p.cover1, p.sx, p.sy]  # fmt: skip


def pack(clips: Sequence[Clip], slots: int = 0) -> Packed:
    """With as many slots as the fullest clip needs, or `slots`."""
    things, shapes, grounds = [], [], []
    slots = slots or max((1, *(len(clip.things) + len(clip.parts) for clip in clips)))
    for clip in clips:
        rows = [_row(t) for t in clip.things] + [_part_row(p) for p in clip.parts]
        kinds = [KINDS.index(t.shape) for t in (*clip.things, *clip.parts)]
        spare = slots - len(rows)
        things.append(rows + [_NOTHING] * spare)
        shapes.append(kinds + [-1] * spare)
        grounds.append([*clip.tints[0], *clip.tints[1], *_FADES[clip.backdrop.fade]])
    return Packed(
        torch.tensor(things, dtype=torch.float32),
        torch.tensor(shapes),
        torch.tensor(grounds, dtype=torch.float32),
    )


def _star(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    outer, inner, wedge = 1.18, 0.52, math.pi / 5
    rho = torch.sqrt(x * x + y * y + 1e-9)
    theta = torch.atan2(x, -y)
    folded = (torch.remainder(theta + wedge, 2 * wedge) - wedge).abs()
    ex, ey = inner * math.cos(wedge) - outer, inner * math.sin(wedge)
    length = math.hypot(ex, ey)
    return ((rho * torch.cos(folded) - outer) * ey - rho * torch.sin(folded) * ex) / length


def _heart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    s, root = 0.62, math.sqrt(0.5)
    y = y - 0.09
    box = torch.maximum(((x + y) * root).abs(), ((x - y) * root).abs()) - s
    lobe = torch.sqrt((x.abs() - s * root) ** 2 + (y + s * root) ** 2 + 1e-9) - s
    return torch.minimum(box, lobe)


def _cross(ax: torch.Tensor, ay: torch.Tensor) -> torch.Tensor:
    long, wide = 1.05, 0.36
    return torch.minimum(torch.maximum(ax - long, ay - wide), torch.maximum(ax - wide, ay - long))


def _smile(x: torch.Tensor, y: torch.Tensor, rho: torch.Tensor) -> torch.Tensor:
    return torch.maximum((rho - 0.8).abs() - 0.16, 0.15 - y)


def signed_distance(kind: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Distance to the outline in radii, negative inside; `kind` indexes KINDS and broadcasts with x, y."""
    rho = torch.sqrt(x * x + y * y + 1e-9)
    ax, ay = x.abs(), y.abs()
    by_name = {
        "circle": rho - 0.95,
        "square": torch.maximum(ax, ay) - 0.82,
        "triangle": torch.maximum(y - 0.575, ax * math.sqrt(0.75) - y / 2 - 0.575),
        "star": _star(x, y),
        "heart": _heart(x, y),
        "ring": (rho - 0.75).abs() - 0.25,
        "cross": _cross(ax, ay),
        "smile": _smile(x, y, rho),
    }
    out = torch.full_like(rho, 9.0)
    for index, name in enumerate(KINDS):
        out = torch.where(kind == index, by_name[name], out)
    return out


def layer(
    frames: torch.Tensor,
    near: torch.Tensor,
    t: torch.Tensor,
    kind: torch.Tensor,
    px: torch.Tensor,
    py: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One thing a clip drawn over frames [N, T, 3, H, W]; `near` [N, T, H, W] grows by its surroundings."""
    n, count = frames.shape[:2]
    t, kind = t.view(n, NUMBERS, 1, 1, 1), kind.view(n, 1, 1, 1)
    time = (torch.arange(count, device=frames.device) / (FRAMES - 1)).view(1, count, 1, 1)
    wave = torch.sin(math.pi * _PULSES * time)
    radius = (t[:, 4] + (t[:, 5] - t[:, 4]) * time) * (1 + t[:, 18] * wave * wave)
    around = t[:, 16] + 2 * math.pi * time
    cx = t[:, 0] + t[:, 2] * time + t[:, 15].abs() * torch.cos(around)
    cx = cx + t[:, 17] * torch.sin(2 * math.pi * _SHAKES * time)
    cy = t[:, 1] + t[:, 3] * time + t[:, 15] * torch.sin(around)
    cy = cy - t[:, 14] * torch.sin(math.pi * _HOPS * time).abs()
    x, y = (px - cx) / (radius * t[:, 21]), (py - cy) / (radius * t[:, 22])
    angle = t[:, 6] + t[:, 7] * time
    cos, sin = torch.cos(angle), torch.sin(angle)
    gap = signed_distance(kind, x * cos + y * sin, y * cos - x * sin)
    gap = gap * radius * torch.minimum(t[:, 21], t[:, 22])
    gap = torch.where(kind < 0, 99.0, gap)
    alpha = (0.5 - gap).clamp(0, 1) * (t[:, 19] + (t[:, 20] - t[:, 19]) * time)
    late = (time * 1.6 - 0.3).clamp(0, 1)
    tint = torch.stack([t[:, 8 + i] + (t[:, 11 + i] - t[:, 8 + i]) * late for i in range(3)], dim=2)
    frames = frames + (tint - frames) * alpha.unsqueeze(2)
    return frames, torch.maximum(near, ((_NEAR_PX - gap) / 2).clamp(0, 1))


Layer = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def draw(
    clips: Packed,
    frames: int = FRAMES,
    side: int = SIDE,
    origin: torch.Tensor | None = None,
    paint: Layer = layer,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames [N, T, 3, side, side] in 0..1 and how near a thing each pixel is [N, T, 1, side, side] in 0..1.

    `origin` [N, 2] cuts a window of `side` pixels out of the full picture; `paint` is `layer`, or `layer` compiled.
    """
    device = clips.things.device
    n = len(clips)
    axis = torch.arange(side, device=device) + 0.5
    if origin is None:
        origin = torch.zeros(n, 2, device=device)
    px = axis.view(1, 1, 1, side) + origin[:, 0].view(n, 1, 1, 1)
    py = axis.view(1, 1, side, 1) + origin[:, 1].view(n, 1, 1, 1)
    g = clips.grounds.view(n, 8, 1, 1, 1)
    mix = (px * g[:, 6] + py * g[:, 7]) / SIDE
    ground = torch.stack([g[:, c] + (g[:, c + 3] - g[:, c]) * mix for c in range(3)], dim=2)
    shown = ground.expand(n, frames, 3, side, side).contiguous()
    near = torch.zeros(n, frames, side, side, device=device)
    for k in range(clips.things.shape[1]):
        shown, near = paint(
            shown, near, clips.things[:, k].contiguous(), clips.shapes[:, k].contiguous(), px, py
        )
    return shown, near.unsqueeze(2)
