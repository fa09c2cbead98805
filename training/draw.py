"""Draws packed clips as batches of antialiased signed-distance shapes, on any torch device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from training.world import FRAMES, SHAPES, SIDE, Clip

_FADES = {"": (0.0, 0.0), "down": (0.0, 1.0), "right": (1.0, 0.0)}
_NEAR_PX = 6.0  # how far around a shape its surroundings reach, for the loss


@dataclass(frozen=True, slots=True)
class Packed:
    """Clips as numbers: things [N, 2, 11], shapes [N, 2] (-1: none), grounds [N, 8]."""

    things: torch.Tensor
    shapes: torch.Tensor
    grounds: torch.Tensor

    def to(self, device: torch.device | str) -> Packed:
        return Packed(self.things.to(device), self.shapes.to(device), self.grounds.to(device))

    def __getitem__(self, rows: torch.Tensor | slice) -> Packed:
        return Packed(self.things[rows], self.shapes[rows], self.grounds[rows])

    def __len__(self) -> int:
        return len(self.shapes)


def pack(clips: Sequence[Clip]) -> Packed:
    things, shapes, grounds = [], [], []
    for clip in clips:
        rows = [[t.x, t.y, t.dx, t.dy, t.r0, t.r1, 0.0, t.turn, *t.tint] for t in clip.things]
        kinds = [SHAPES.index(t.shape) for t in clip.things]
        while len(rows) < 2:
            rows.append([-999.0, -999.0, 0, 0, 1, 1, 0, 0, 0, 0, 0])
            kinds.append(-1)
        things.append(rows)
        shapes.append(kinds)
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


def signed_distance(kind: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Distance to the outline in radii, negative inside; `kind` indexes SHAPES and broadcasts with x, y."""
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
    }
    out = torch.full_like(rho, 9.0)
    for index, name in enumerate(SHAPES):
        out = torch.where(kind == index, by_name[name], out)
    return out


def draw(
    clips: Packed, frames: int = FRAMES, side: int = SIDE, origin: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames [N, T, 3, side, side] in 0..1 and how near a thing each pixel is [N, T, 1, side, side] in 0..1.

    `origin` [N, 2] cuts a window of `side` pixels out of the full picture.
    """
    device = clips.things.device
    n = len(clips)
    time = (torch.arange(frames, device=device) / (FRAMES - 1)).view(1, frames, 1, 1)
    axis = torch.arange(side, device=device) + 0.5
    if origin is None:
        origin = torch.zeros(n, 2, device=device)
    px = axis.view(1, 1, 1, side) + origin[:, 0].view(n, 1, 1, 1)
    py = axis.view(1, 1, side, 1) + origin[:, 1].view(n, 1, 1, 1)

    g = clips.grounds.view(n, 8, 1, 1, 1)
    mix = (px * g[:, 6] + py * g[:, 7]) / SIDE
    ground = [(g[:, c] + (g[:, c + 3] - g[:, c]) * mix).expand(n, frames, side, side) for c in range(3)]
    near = torch.zeros(n, frames, side, side, device=device)
    for k in range(clips.things.shape[1]):
        t = clips.things[:, k].view(n, 11, 1, 1, 1)
        radius = t[:, 4] + (t[:, 5] - t[:, 4]) * time
        x, y = (px - t[:, 0] - t[:, 2] * time) / radius, (py - t[:, 1] - t[:, 3] * time) / radius
        angle = t[:, 6] + t[:, 7] * time
        cos, sin = torch.cos(angle), torch.sin(angle)
        kind = clips.shapes[:, k].view(n, 1, 1, 1)
        gap = signed_distance(kind, x * cos + y * sin, y * cos - x * sin) * radius
        gap = torch.where(kind < 0, 99.0, gap)
        alpha = (0.5 - gap).clamp(0, 1)
        ground = [c + (t[:, 8 + i] - c) * alpha for i, c in enumerate(ground)]
        near = torch.maximum(near, ((_NEAR_PX - gap) / 2).clamp(0, 1))
    return torch.stack(ground, dim=2), near.unsqueeze(2)
