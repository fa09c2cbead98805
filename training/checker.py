"""Reads colour, shape, motion and background off the frames of a clip, by measuring; nothing here was learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import torch
import torch.nn.functional as F

from training.captions import is_same
from training.draw import signed_distance
from training.world import BACKGROUNDS, COLOURS, SHAPES, Backdrop, Clip

_FOREGROUND = 0.22  # RGB distance from the background beyond which a pixel belongs to a thing
_MOVED_PX = 9.0
_GREW = 1.3
_WENT_PX = 14.0  # how far a thing that comes back must have been away
_SHOOK_PX = 3.0
_FADED = 0.45  # of the full contrast, or less, where a thing appears or vanishes
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
    colour2: str = ""  # what it changes to


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

    @property
    def all(self) -> bool:
        return self.colour and self.shape and self.motion and self.background


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
    """Foreground masks, one for each thing, apart by colour."""
    if count == 1:
        return [mask]
    pixels = frames.permute(0, 2, 3, 1)
    inside = pixels[mask]
    if len(inside) < count * _LEAST_PX:
        return [mask]
    names = list(COLOURS)
    palette = torch.tensor([COLOURS[n] for n in names], device=frames.device)
    votes = torch.bincount((inside[:, None] - palette).norm(dim=-1).argmin(-1), minlength=len(names))
    top = votes.argsort(descending=True)[:count]
    centres = palette[top]
    for _ in range(4):
        label = (inside[:, None] - centres).norm(dim=-1).argmin(-1)
        centres = torch.stack(
            [inside[label == k].median(0).values if (label == k).any() else centres[k] for k in range(count)]
        )
    gaps = (pixels.unsqueeze(-2) - centres).norm(dim=-1)
    label = gaps.argmin(-1)
    # Blends at the rim of one thing can look like the other's colour: keep the pixels near the other's middle.
    parts = []
    for k in range(count):
        part = _solid(mask & (label == k) & (gaps[..., k] < 0.45))
        parts.append(_main_body(part))
    return parts


def _lanes(mask: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Foreground masks of things that look the same: apart by place, along the side on which they lie further apart."""
    t, h, w = mask.shape
    places = mask.nonzero().float()
    if len(places) < count * _LEAST_PX:
        return [mask]
    best, cut = -1.0, (mask,) * count
    for axis in (1, 2):
        along = places[:, axis]
        centres = torch.quantile(along[:: max(1, len(along) // 4000)], (torch.arange(count) + 0.5) / count)
        for _ in range(8):
            label = (along[:, None] - centres).abs().argmin(-1)
            centres = torch.stack(
                [along[label == k].mean() if (label == k).any() else centres[k] for k in range(count)]
            )
        within = (along - centres[label]).std() + 1
        apart = float((centres.sort().values.diff().min()) / within)
        if apart > best:
            ruler = torch.arange((t, h, w)[axis]).float()
            owner = (ruler[:, None] - centres).abs().argmin(-1)
            owner = owner.view((1, h, 1) if axis == 1 else (1, 1, w))
            best, cut = apart, tuple(mask & (owner == k) for k in range(count))
    return list(cut)


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


def _colour_of(pixels: torch.Tensor, mask: torch.Tensor, core: torch.Tensor) -> torch.Tensor:
    return pixels[core if int(core.sum()) > 60 else mask].median(0).values


def _read_thing(frames: torch.Tensor, ground: torch.Tensor, mask: torch.Tensor) -> ThingReading | None:
    t, h, w = mask.shape
    areas = mask.sum((1, 2)).float()
    third = max(1, t // 6)
    if float(areas.topk(max(1, t // 3)).values.min()) < _LEAST_PX:
        return None
    core = F.avg_pool2d(mask.float().unsqueeze(1), 3, 1, 1).squeeze(1) > 0.99
    pixels = frames.permute(0, 2, 3, 1)
    contrast = torch.stack(
        [
            (frames[i] - ground[0]).norm(dim=0)[m].median() if m.any() else torch.zeros(())
            for i, m in enumerate(mask)
        ]
    )
    contrast = torch.where(areas < _LEAST_PX / 2, 0.0, contrast)
    full = contrast.max()
    shown = (contrast / full.clamp_min(1e-6)) > 0.8
    rgb = _colour_of(pixels[shown], mask[shown], core[shown])
    first, last = float(contrast[:third].mean() / full), float(contrast[-third:].mean() / full)
    begins = [i for i in range(third + 1) if areas[i] >= _LEAST_PX]
    ends = [i for i in range(t - third - 1, t) if areas[i] >= _LEAST_PX]
    colour, colour2 = _nearest(rgb, COLOURS), ""
    if begins and ends and min(first, last) > _FADED:
        start, end = (_colour_of(pixels[rows], mask[rows], core[rows]) for rows in (begins, ends))
        if (start - end).norm() > 0.3 and _nearest(start, COLOURS) != _nearest(end, COLOURS):
            colour, colour2 = _nearest(start, COLOURS), _nearest(end, COLOURS)

    # How much of each pixel the thing covers: its place on the line from background to the thing's colour.
    if colour2:
        own = torch.stack([pixels[i][mask[i]].median(0).values if mask[i].any() else rgb for i in range(t)])
    else:
        own = rgb.expand(t, 3)
    line = own.view(t, 3, 1, 1) - ground
    cover = (((frames - ground) * line).sum(1) / (line * line).sum(1).clamp_min(1e-4)).clamp(0, 1)
    wide = F.max_pool2d(mask.float().unsqueeze(1), 5, 1, 2).squeeze(1)
    cover = cover * wide
    if min(first, last) <= _FADED and not colour2:  # its outline while it is seen at all
        cover = cover / (contrast / full).clamp_min(0.2).view(t, 1, 1)
        cover = cover.clamp(0, 1)
    size = cover.sum((1, 2)).clamp_min(1e-3)
    xs = (cover * torch.arange(w, device=cover.device)).sum((1, 2)) / size
    ys = (cover * torch.arange(h, device=cover.device).view(h, 1)).sum((1, 2)) / size
    looks = torch.stack([_centred(cover[i], float(xs[i]), float(ys[i]), float(size[i])) for i in range(t)])
    big = size.argsort(descending=True)[: max(3, t // 2)]
    scores = _overlap(looks[big, None, None], _templates(str(cover.device))[None]).max(-1).values.mean(0)
    shape = SHAPES[int(scores.argmax())]
    if colour2:
        motion = "changing"
    elif first <= _FADED and last > 0.75:
        motion = "appearing"
    elif last <= _FADED and first > 0.75:
        motion = "vanishing"
    else:
        motion = _motion(xs, ys, size.sqrt(), looks, shape)
    return ThingReading(colour, shape, motion, float(xs.mean()), float(ys.mean()), colour2)


def _there_and_back(path: torch.Tensor) -> int:
    """How often a path turns round, by more than jitter."""
    turns, sign, mark = 0, 0, float(path[0])
    for value in path.tolist():
        step = value - mark
        if abs(step) > 2.0:
            now = 1 if step > 0 else -1
            turns += sign not in (0, now)
            sign, mark = now, value
        elif sign and step * sign > 0:
            mark = value
    return turns


def _motion(xs: torch.Tensor, ys: torch.Tensor, radius: torch.Tensor, looks: torch.Tensor, shape: str) -> str:
    third = max(1, len(xs) // 6)

    def net(path: torch.Tensor) -> float:
        return float(path[-third:].mean() - path[:third].mean())

    dx, dy, grew = net(xs), net(ys), float(radius[-third:].mean() / radius[:third].mean())
    across, along = float(xs.max() - xs.min()), float(ys.max() - ys.min())
    if min(across, along) > 2 * _WENT_PX and 0.5 < across / along < 2:
        return "circling"
    if along > _WENT_PX and along > 2 * abs(dy) and along > 1.5 * across and _there_and_back(ys) >= 2:
        return "bouncing"
    if across > 2 * _SHOOK_PX and across > 2 * abs(dx) and _there_and_back(xs) >= 3:
        return "shaking"
    if max(abs(dx), abs(dy)) > _MOVED_PX:
        if abs(dx) >= abs(dy):
            return "right" if dx > 0 else "left"
        return "down" if dy > 0 else "up"
    if float(radius.max() / radius.min()) > 1.2 and _there_and_back(radius / radius.mean() * 20) >= 2:
        return "pulsing"
    if grew > _GREW:
        return "growing"
    if grew < 1 / _GREW:
        return "shrinking"
    return "spinning" if _turned(looks, shape) else "still"


def _turned(looks: torch.Tensor, shape: str) -> bool:
    """Whether the best-fitting turn of the shape's template goes on changing."""
    if shape in ("circle", "ring"):
        return False
    fits = _overlap(looks[:, None], _templates(str(looks.device))[SHAPES.index(shape)][None])
    start, steps = fits[: max(1, len(looks) // 6)].mean(0), fits
    held = steps[:, int(start.argmax())]  # how well the first turn still fits later
    return float((steps.max(-1).values - held).quantile(0.75)) > 0.05


def read(frames: torch.Tensor, count: int = 1, same: bool = False) -> Reading:
    """Measures `count` things in frames [T, 3, H, W] in 0..1; `same` where they should all look alike."""
    frames = frames.float()
    h, w = frames.shape[-2:]
    plane = _plane(frames)
    ys = torch.linspace(0, 1, h, device=frames.device).view(1, h, 1)
    xs = torch.linspace(0, 1, w, device=frames.device).view(1, 1, w)
    ground = (plane[0].view(3, 1, 1) + plane[1].view(3, 1, 1) * xs + plane[2].view(3, 1, 1) * ys)[None]
    mask = _solid((frames - ground).norm(dim=1) > _FOREGROUND)
    parts = _lanes(mask, count) if same else _split(frames, mask, count)
    found = [_read_thing(frames, ground, part) for part in parts]
    return Reading(tuple(f for f in found if f is not None), _read_backdrop(plane))


def judge(clip: Clip, reading: Reading) -> Verdict:
    """Compares with what was asked; of two things both must be right, in whichever order they were found."""
    background = reading.backdrop == clip.backdrop
    if len(reading.things) != len(clip.things):
        return Verdict(False, False, False, background)

    def score(order: tuple[ThingReading, ...]) -> tuple[bool, bool, bool]:
        pairs = list(zip(order, clip.things, strict=True))
        return (
            all(r.colour == t.colour and r.colour2 == t.colour2 for r, t in pairs),
            all(r.shape == t.shape for r, t in pairs),
            all(r.motion == t.motion for r, t in pairs),
        )

    colour, shape, motion = max(
        (score(p) for p in permutations(reading.things)), key=lambda s: (s[0], sum(s))
    )
    return Verdict(colour, shape, motion, background)


def verdict_on(clip: Clip, frames: torch.Tensor) -> Verdict:
    """What frames [T, 3, H, W] in 0..1 show of what was asked."""
    return judge(clip, read(frames, len(clip.things), is_same(clip)))
