"""Reads colour, shape, motion and background off the frames of a clip, by measuring; nothing here was learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import torch
import torch.nn.functional as F

from training.draw import signed_distance
from training.world import BACKGROUNDS, COLOURS, SHAPES, Backdrop, Clip

_FOREGROUND = 0.22  # RGB distance from the background beyond which a pixel belongs to a thing
_MOVED_PX = 9.0
_GREW = 1.3
_GRID = 40
_TURNS = 36
_LEAST_PX = 40


@dataclass(frozen=True, slots=True)
class ThingReading:
    colour: str
    shape: str
    motion: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What the frames show; `things` may hold fewer than were looked for."""

    things: tuple[ThingReading, ...]
    backdrop: Backdrop


@dataclass(frozen=True, slots=True)
class Verdict:
    colour: bool
    shape: bool
    motion: bool
    background: bool


def _nearest(rgb: torch.Tensor, palette: dict[str, tuple[float, float, float]]) -> str:
    names = list(palette)
    table = torch.tensor([palette[n] for n in names], device=rgb.device)
    return names[int((table - rgb).norm(dim=-1).argmin())]


def _plane(frames: torch.Tensor) -> torch.Tensor:
    """The background as colour planes [3 coefficients (1, x, y), 3 channels], fitted to what is not a thing."""
    t, _, h, w = frames.shape
    ys, xs = torch.meshgrid(
        torch.linspace(0, 1, h, device=frames.device),
        torch.linspace(0, 1, w, device=frames.device),
        indexing="ij",
    )
    basis = torch.stack([torch.ones_like(xs), xs, ys], dim=-1).reshape(-1, 3)
    picked = frames[:: max(1, t // 4)].permute(0, 2, 3, 1).reshape(-1, h * w, 3)
    border = ((xs < 0.04) | (xs > 0.96) | (ys < 0.04) | (ys > 0.96)).reshape(-1)
    weight = border.float().expand(len(picked), -1)
    for _ in range(4):
        normal = torch.einsum("ni,tn,nj->ij", basis, weight, basis) + 1e-4 * torch.eye(
            3, device=frames.device
        )
        plane = torch.linalg.solve(normal, torch.einsum("ni,tn,tnc->ic", basis, weight, picked))
        off = (picked - basis @ plane).norm(dim=-1)
        weight = (off < 0.12).float()
        if weight.mean() < 0.3:
            weight = border.float().expand(len(picked), -1)
    return plane


def _read_backdrop(plane: torch.Tensor) -> Backdrop:
    def at(x: float, y: float) -> torch.Tensor:
        return plane[0] + plane[1] * x + plane[2] * y

    across, along = plane[1].norm(), plane[2].norm()
    if max(across, along) < 0.2:
        name = _nearest(at(0.5, 0.5), BACKGROUNDS)
        return Backdrop(name, name)
    if along >= across:
        return Backdrop(_nearest(at(0.5, 0), BACKGROUNDS), _nearest(at(0.5, 1), BACKGROUNDS), "down")
    return Backdrop(_nearest(at(0, 0.5), BACKGROUNDS), _nearest(at(1, 0.5), BACKGROUNDS), "right")


def _solid(mask: torch.Tensor) -> torch.Tensor:
    """The mask without specks and thin fringes [T, H, W]."""
    votes = F.avg_pool2d(mask.float().unsqueeze(1), 3, 1, 1).squeeze(1)
    return mask & (votes > 0.5)


def _split(frames: torch.Tensor, mask: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Foreground masks, one for each thing: apart by colour, as no clip has two things of one colour."""
    if count == 1:
        return [mask]
    pixels = frames.permute(0, 2, 3, 1)
    inside = pixels[mask]
    if len(inside) < 2 * _LEAST_PX:
        return [mask]
    names = list(COLOURS)
    palette = torch.tensor([COLOURS[n] for n in names], device=frames.device)
    votes = torch.bincount((inside[:, None] - palette).norm(dim=-1).argmin(-1), minlength=len(names))
    top = votes.argsort(descending=True)[:2]
    centres = palette[top]
    for _ in range(4):
        label = (inside[:, None] - centres).norm(dim=-1).argmin(-1)
        centres = torch.stack(
            [inside[label == k].median(0).values if (label == k).any() else centres[k] for k in range(2)]
        )
    gaps = (pixels.unsqueeze(-2) - centres).norm(dim=-1)
    label = gaps.argmin(-1)
    # Blends at the rim of one thing can look like the other's colour: keep the pixels near the other's middle.
    parts = []
    for k in range(2):
        part = _solid(mask & (label == k) & (gaps[..., k] < 0.45))
        parts.append(_main_body(part))
    return parts


def _main_body(mask: torch.Tensor) -> torch.Tensor:
    """Only what lies close to the median pixel of each frame."""
    t, h, w = mask.shape
    out = torch.zeros_like(mask)
    ys = torch.arange(h, device=mask.device).view(h, 1).expand(h, w)
    xs = torch.arange(w, device=mask.device).view(1, w).expand(h, w)
    for i in range(t):
        if mask[i].sum() < 8:
            continue
        my, mx = ys[mask[i]].float().median(), xs[mask[i]].float().median()
        reach = 1.9 * math.sqrt(float(mask[i].sum()) / 2) + 3
        out[i] = mask[i] & ((ys - my).abs() < reach) & ((xs - mx).abs() < reach)
    return out


@cache
def _templates(device: str) -> torch.Tensor:
    """Every shape at every turn, centred and of unit area [shapes, turns, grid²]."""
    angles = torch.arange(_TURNS, device=device) * (2 * math.pi / _TURNS)
    rows = []
    for index in range(len(SHAPES)):
        kind = torch.tensor(index, device=device)
        fine = (torch.arange(200, device=device) + 0.5) / 100 - 1
        y, x = torch.meshgrid(fine * 1.3, fine * 1.3, indexing="ij")
        solid = (signed_distance(kind, x, y) < 0).float()
        area = float(solid.sum()) * 0.013**2
        cy, cx = float((solid * y).sum() / solid.sum()), float((solid * x).sum() / solid.sum())
        gy, gx = torch.meshgrid(_grid(device), _grid(device), indexing="ij")
        turns = []
        for a in angles:
            u, v = gx * torch.cos(a) + gy * torch.sin(a), gy * torch.cos(a) - gx * torch.sin(a)
            scale = math.sqrt(area)
            gap = signed_distance(kind, u * scale + cx, v * scale + cy) / scale
            turns.append((0.5 - gap * _GRID / 2.4).clamp(0, 1).reshape(-1))
        rows.append(torch.stack(turns))
    return torch.stack(rows)


def _grid(device: str | torch.device) -> torch.Tensor:
    return ((torch.arange(_GRID, device=device) + 0.5) / _GRID * 2 - 1) * 1.2


def _centred(alpha: torch.Tensor, x: float, y: float, area: float) -> torch.Tensor:
    """A soft mask [H, W] resampled about its centre to unit area [grid²]."""
    h, w = alpha.shape
    axis = _grid(alpha.device) * math.sqrt(area)
    gy, gx = torch.meshgrid((axis + y + 0.5) / h * 2 - 1, (axis + x + 0.5) / w * 2 - 1, indexing="ij")
    where = torch.stack([gx, gy], dim=-1)[None]
    return F.grid_sample(alpha[None, None], where, align_corners=False)[0, 0].reshape(-1)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    both = torch.minimum(a, b).sum(-1)
    return both / (a.sum(-1) + b.sum(-1) - both).clamp_min(1e-6)


def _read_thing(frames: torch.Tensor, ground: torch.Tensor, mask: torch.Tensor) -> ThingReading | None:
    t, h, w = mask.shape
    areas = mask.sum((1, 2)).float()
    if float(areas.median()) < _LEAST_PX:
        return None
    core = F.avg_pool2d(mask.float().unsqueeze(1), 3, 1, 1).squeeze(1) > 0.99
    pixels = frames.permute(0, 2, 3, 1)
    rgb = pixels[core if int(core.sum()) > 60 else mask].median(0).values

    # How much of each pixel the thing covers: its place on the line from background to the thing's colour.
    line = rgb.view(1, 3, 1, 1) - ground
    cover = (((frames - ground) * line).sum(1) / (line * line).sum(1).clamp_min(1e-4)).clamp(0, 1)
    wide = F.max_pool2d(mask.float().unsqueeze(1), 5, 1, 2).squeeze(1)
    cover = cover * wide
    size = cover.sum((1, 2)).clamp_min(1e-3)
    xs = (cover * torch.arange(w, device=cover.device)).sum((1, 2)) / size
    ys = (cover * torch.arange(h, device=cover.device).view(h, 1)).sum((1, 2)) / size

    looks = torch.stack([_centred(cover[i], float(xs[i]), float(ys[i]), float(size[i])) for i in range(t)])
    third = max(1, t // 6)
    dx = float(xs[-third:].mean() - xs[:third].mean())
    dy = float(ys[-third:].mean() - ys[:third].mean())
    grew = float((size[-third:].mean() / size[:third].mean()).sqrt())
    big = size.argsort(descending=True)[: max(3, t // 2)]
    scores = _overlap(looks[big, None, None], _templates(str(cover.device))[None]).max(-1).values.mean(0)
    shape = SHAPES[int(scores.argmax())]
    return ThingReading(
        _nearest(rgb, COLOURS), shape, _motion(dx, dy, grew, looks, shape), float(xs.mean()), float(ys.mean())
    )


def _motion(dx: float, dy: float, grew: float, looks: torch.Tensor, shape: str) -> str:
    if max(abs(dx), abs(dy)) > _MOVED_PX:
        if abs(dx) >= abs(dy):
            return "right" if dx > 0 else "left"
        return "down" if dy > 0 else "up"
    if grew > _GREW:
        return "growing"
    return "spinning" if _turned(looks, shape) else "still"


def _turned(looks: torch.Tensor, shape: str) -> bool:
    """Whether the best-fitting turn of the shape's template goes on changing."""
    if shape in ("circle", "ring"):
        return False
    fits = _overlap(looks[:, None], _templates(str(looks.device))[SHAPES.index(shape)][None])
    start, steps = fits[: max(1, len(looks) // 6)].mean(0), fits
    held = steps[:, int(start.argmax())]  # how well the first turn still fits later
    return float((steps.max(-1).values - held).quantile(0.75)) > 0.05


def read(frames: torch.Tensor, count: int = 1) -> Reading:
    """Measures `count` things in frames [T, 3, H, W] in 0..1."""
    frames = frames.float()
    h, w = frames.shape[-2:]
    plane = _plane(frames)
    ys = torch.linspace(0, 1, h, device=frames.device).view(1, h, 1)
    xs = torch.linspace(0, 1, w, device=frames.device).view(1, 1, w)
    ground = (plane[0].view(3, 1, 1) + plane[1].view(3, 1, 1) * xs + plane[2].view(3, 1, 1) * ys)[None]
    mask = _solid((frames - ground).norm(dim=1) > _FOREGROUND)
    found = [_read_thing(frames, ground, part) for part in _split(frames, mask, count)]
    return Reading(tuple(f for f in found if f is not None), _read_backdrop(plane))


def judge(clip: Clip, reading: Reading) -> Verdict:
    """Compares with what was asked; of two things both must be right, in whichever order they were found."""
    background = reading.backdrop == clip.backdrop
    if len(reading.things) != len(clip.things):
        return Verdict(False, False, False, background)

    def score(order: tuple[ThingReading, ...]) -> tuple[bool, bool, bool]:
        pairs = list(zip(order, clip.things, strict=True))
        return (
            all(r.colour == t.colour for r, t in pairs),
            all(r.shape == t.shape for r, t in pairs),
            all(r.motion == t.motion for r, t in pairs),
        )

    colour, shape, motion = max(
        (score(p) for p in permutations(reading.things)), key=lambda s: (s[0], sum(s))
    )
    return Verdict(colour, shape, motion, background)
