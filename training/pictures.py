"""Pictures of no known thing, and a camera over them: so that a given photo, drawing or screenshot is kept and moves.

No photo is used. Leaves of all sizes falling over each other, with grain and light, have the statistics of photos; thin
bars on a pale ground look like screenshots.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from training.draw import NUMBERS, Layer, layer
from training.world import FRAMES, SIDE, Backdrop, Clip

BANK_SIDE = 192
CAMERAS = ("left", "right", "up", "down", "growing", "shrinking", "spinning", "shaking", "still")
_LEAVES = 48
_SCREENS = 0.2  # share of the pictures that look like screenshots
_GRAY = Backdrop("gray", "gray")


@torch.no_grad()
def bank(count: int, device: torch.device, seed: int, paint: Layer = layer, chunk: int = 256) -> torch.Tensor:
    """Pictures [count, 3, BANK_SIDE, BANK_SIDE] in 0..1, in half precision."""
    dice = torch.Generator(device).manual_seed(seed)
    return torch.cat([_leaves(min(chunk, count - at), device, dice, paint) for at in range(0, count, chunk)])


def _leaves(n: int, device: torch.device, dice: torch.Generator, paint: Layer) -> torch.Tensor:
    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, device=device, generator=dice)

    def between(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * rand(n)

    side = BANK_SIDE
    screen = rand(n) < _SCREENS
    mood, spread = 0.15 + 0.7 * rand(n, 3), between(0.1, 0.45).view(n, 1)
    ground = torch.where(screen.view(n, 1), 0.85 + 0.15 * rand(n, 3), mood)
    shown = ground.view(n, 1, 3, 1, 1).expand(n, 1, 3, side, side).contiguous()
    near = torch.zeros(n, 1, side, side, device=device)
    axis = torch.arange(side, device=device) + 0.5
    px, py = axis.view(1, 1, 1, side).expand(n, 1, 1, side), axis.view(1, 1, side, 1).expand(n, 1, side, 1)
    for k in range(_LEAVES):
        most = 70 * (1 - k / _LEAVES) + 8  # the large ones lie below
        numbers = torch.zeros(n, NUMBERS, device=device)
        numbers[:, 0], numbers[:, 1] = between(-10, side + 10), between(-10, side + 10)
        numbers[:, 4] = torch.exp(math.log(3) + (math.log(most) - math.log(3)) * rand(n))
        numbers[:, 4] = torch.where(screen, 2 + 6 * rand(n), numbers[:, 4])
        numbers[:, 5] = numbers[:, 4]
        numbers[:, 6] = torch.where(screen, 0.0, between(0, 2 * math.pi))
        tint = torch.where(rand(n, 1) < 0.15, rand(n, 3), mood + spread * (2 * rand(n, 3) - 1))
        tint = torch.where(screen.view(n, 1) & (rand(n, 1) < 0.7), 0.3 * rand(n, 3), tint).clamp(0, 1)
        numbers[:, 8:11] = tint
        numbers[:, 11:14] = tint
        numbers[:, 19] = numbers[:, 20] = 1.0
        numbers[:, 21] = torch.where(screen, between(1, 9), between(0.5, 1.8))
        numbers[:, 22] = torch.where(screen, between(0.3, 1), between(0.5, 1.8))
        kind = torch.where(screen, 1, (rand(n) * 3).long())
        shown, near = paint(shown, near, numbers, kind, px, py)
    picture = shown[:, 0]
    grain = sum(
        F.interpolate(rand(n, 1, s, s) - 0.5, size=(side, side), mode="bilinear", align_corners=False)
        for s in (6, 12, 24, 48, 96)
    )
    light = F.interpolate(rand(n, 1, 3, 3), size=(side, side), mode="bilinear", align_corners=True)
    amount = torch.where(screen, 0.0, between(0, 0.22)).view(n, 1, 1, 1)
    picture = (picture + amount * grain) * (1 - 2 * amount * (1 - light))
    soft = F.avg_pool2d(F.pad(picture, (1, 1, 1, 1), mode="replicate"), 3, 1)
    picture = torch.where((rand(n) < 0.5).view(n, 1, 1, 1) & ~screen.view(n, 1, 1, 1), soft, picture)
    return picture.clamp(0, 1).half()


def shots(seed: int) -> Iterator[tuple[Clip, list[float]]]:
    """Endless camera moves, and their numbers: shift in x and y, last zoom, turn, shake."""
    rng = random.Random(seed)
    while True:
        motion, pace = rng.choice(CAMERAS), rng.choice(("slow", "steady", "fast"))
        slow = {"slow": 0.6, "steady": 1.0, "fast": 1.5}[pace] * rng.uniform(0.9, 1.1)
        travel = 36 * slow
        dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}.get(motion, (0, 0))
        zoom = {"growing": 1 + 0.45 * slow, "shrinking": 1 / (1 + 0.4 * slow)}.get(motion, 1.0)
        turn = 0.35 * math.pi * slow if motion == "spinning" else 0.0
        shake = 5 * slow if motion == "shaking" else 0.0
        clip = Clip((), _GRAY, ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), camera=motion, pace=pace)
        yield clip, [dx * travel, dy * travel, zoom, turn, shake]


def any_shot(count: int, device: torch.device) -> torch.Tensor:
    """Numbers [count, 5] of arbitrary moves, drawn where they are used."""
    r = torch.rand(count, 6, device=device) * 2 - 1
    kind = torch.rand(count, 1, device=device)
    some = torch.cat([40 * r[:, :2], torch.exp(0.4 * r[:, 2:3]), r[:, 3:4], 3 * r[:, 4:5]], dim=1)
    none = torch.zeros(
        1, 5, device=device
    )  # made where it is used: a CUDA graph takes no copies from the host
    none[:, 2] = 1
    return torch.where(kind < 0.3, none, some)


def film(
    pictures: torch.Tensor, numbers: torch.Tensor, frames: int = FRAMES, side: int = SIDE, view: float = SIDE
) -> torch.Tensor:
    """Frames [N, frames, 3, side, side] in 0..1: what the camera sees of pictures [N, 3, S, S], `view` pixels of the middle
    at first."""
    n, device = len(pictures), pictures.device
    time = (torch.arange(frames, device=device) / (FRAMES - 1)).view(1, frames)
    dx, dy, zoom, turn, shake = (numbers[:, i : i + 1] for i in range(5))
    zoom = torch.exp(torch.log(zoom) * time)
    x0 = dx * time + shake * torch.sin(2 * math.pi * 3 * time)
    y0 = dy * time + 0.6 * shake * torch.sin(2 * math.pi * 4 * time + 1) - 0.6 * shake * math.sin(1)
    axis = (torch.arange(side, device=device) + 0.5) - side / 2
    u = axis.view(1, 1, 1, side) - x0.view(n, frames, 1, 1)
    v = axis.view(1, 1, side, 1) - y0.view(n, frames, 1, 1)
    angle = (turn * time).view(n, frames, 1, 1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    scale = (view / side) / (pictures.shape[-1] / 2) / zoom.view(n, frames, 1, 1)
    where = torch.stack([(u * cos + v * sin) * scale, (v * cos - u * sin) * scale], dim=-1)
    source = pictures.float().unsqueeze(1).expand(-1, frames, -1, -1, -1).flatten(0, 1)
    seen = F.grid_sample(
        source, where.flatten(0, 1), mode="bilinear", padding_mode="reflection", align_corners=False
    )
    return seen.unflatten(0, (n, frames)).clamp(0, 1)
