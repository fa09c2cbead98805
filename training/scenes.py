"""Small scenes that shapes can make: a name, the parts, and what lies behind. Pure Python, like `world`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from training.world import BACKGROUNDS, COLOURS, RGB, SIDE, Backdrop, Clip, Part, tinted

_GREEN, _BROWN, _WHITE, _BLACK = (COLOURS[c] for c in ("green", "brown", "white", "black"))
_YELLOW, _ORANGE, _RED, _BLUE = (COLOURS[c] for c in ("yellow", "orange", "red", "blue"))
_SEA: RGB = (0.10, 0.35, 0.70)
_SNOW: RGB = (0.90, 0.93, 0.97)
_DARK: RGB = (0.15, 0.15, 0.17)
_DIM: RGB = (0.30, 0.30, 0.32)
TONES = ("red", "orange", "yellow", "green", "blue", "purple", "pink")

Made = tuple[list[Part], str]


def _floor(tint: RGB, top: float) -> Part:
    """Everything below `top`."""
    half = (SIDE - top) / 2
    return Part("square", tint, SIDE / 2, top + half, half / 0.82, sx=SIDE / 2 / half * 1.1)


def _sunrise(rng: random.Random, tone: RGB) -> Made:
    x = rng.uniform(45, 83)
    sun = Part("circle", _ORANGE, x, 106, rng.uniform(17, 21), dy=-rng.uniform(55, 65), tint2=_YELLOW)
    return [sun, _floor(_GREEN, rng.uniform(92, 100))], "light blue"


def _sunset(rng: random.Random, tone: RGB) -> Made:
    x = rng.uniform(45, 83)
    sun = Part("circle", _ORANGE, x, 45, rng.uniform(17, 21), dy=rng.uniform(55, 65), tint2=_RED)
    return [sun, _floor(_SEA, rng.uniform(88, 96))], "pink"


def _rain(rng: random.Random, tone: RGB) -> Made:
    drops = [
        Part(
            "square", (0.25, 0.50, 0.95), 6 + i * 10.5 + rng.uniform(-3, 3), rng.uniform(-75, 90), 7,
            sx=0.28, dy=rng.uniform(85, 100),
        )
        for i in range(12)
    ]  # fmt: skip
    return drops, "gray"


def _snowfall(rng: random.Random, tone: RGB) -> Made:
    flakes = [
        Part("circle", _WHITE, 6 + i * 10.5 + rng.uniform(-3, 3), rng.uniform(-35, 105), rng.uniform(3, 4.5),
             dy=rng.uniform(38, 50), shake=2.0)
        for i in range(12)
    ]  # fmt: skip
    return flakes, "dark blue"


def _snowman(rng: random.Random, tone: RGB) -> Made:
    x, y = rng.uniform(50, 78), rng.uniform(90, 96)
    white: RGB = (0.98, 0.98, 0.98)
    parts = [
        _floor(_SNOW, 104),
        Part("circle", white, x, y, 24), Part("circle", white, x, y - 32, 17),
        Part("circle", white, x, y - 54, 12),
        Part("square", _BLACK, x, y - 66, 7, sx=1.6, sy=0.35), Part("square", _BLACK, x, y - 72, 7),
        Part("circle", _BLACK, x - 4, y - 56, 2), Part("circle", _BLACK, x + 4, y - 56, 2),
        Part("triangle", _ORANGE, x, y - 51, 3.5),
    ]  # fmt: skip
    return parts, "light blue"


def _face(rng: random.Random, tone: RGB) -> Made:
    x, y, r = rng.uniform(54, 74), rng.uniform(54, 74), rng.uniform(33, 40)
    parts = [
        Part("circle", _YELLOW, x, y, r),
        Part("circle", _BLACK, x - r * 0.35, y - r * 0.25, r * 0.13),
        Part("circle", _BLACK, x + r * 0.35, y - r * 0.25, r * 0.13),
        Part("smile", _BLACK, x, y + r * 0.05, r * 0.62),
    ]
    return parts, "light blue"


def _house(rng: random.Random, tone: RGB) -> Made:
    x, r = rng.uniform(52, 76), rng.uniform(26, 31)
    y = 98 - r * 0.82
    parts = [
        _floor(_GREEN, 98),
        Part("square", tone, x, y, r),
        Part("triangle", _BROWN, x, y - r * 1.22, r * 0.95, sx=1.1, sy=0.75),
        Part("square", _BROWN, x, y + r * 0.45, r * 0.42, sx=0.6),
        Part("square", (0.98, 0.95, 0.6), x - r * 0.45, y - r * 0.25, r * 0.22),
        Part("square", (0.98, 0.95, 0.6), x + r * 0.45, y - r * 0.25, r * 0.22),
    ]
    return parts, "light blue"


def _boat(rng: random.Random, tone: RGB) -> Made:
    x, dx = rng.uniform(40, 52), rng.uniform(22, 34)
    if rng.random() < 0.5:
        x, dx = SIDE - x, -dx
    go = {"dx": dx, "hop": 4.0}
    parts = [
        Part("square", _BROWN, x, 63, 14, sx=0.09, sy=2.0, **go),
        Part("triangle", _WHITE, x + 10, 62, 16, sx=0.85, **go),
        Part("triangle", tone, x, 92, 26, sx=1.3, sy=0.6, angle=math.pi, **go),
        _floor(_SEA, 96),
        *[Part("circle", _SEA, 8 + i * 19, 97, 10, sy=0.45, dx=8.0) for i in range(7)],
    ]
    return parts, "light blue"


def _traffic_light(rng: random.Random, tone: RGB) -> Made:
    x, y = rng.uniform(50, 78), rng.uniform(58, 68)
    lit: RGB = (0.10, 0.85, 0.30)
    parts = [
        Part("square", _DARK, x, y, 46, sx=0.46),
        Part("circle", _RED, x, y - 24, 11, tint2=_DIM),
        Part("circle", _DIM, x, y, 11),
        Part("circle", _DIM, x, y + 24, 11, tint2=lit),
    ]
    return parts, rng.choice(("light blue", "beige"))


def _balloons(rng: random.Random, tone: RGB) -> Made:
    others = [COLOURS[c] for c in TONES if COLOURS[c] != tone]
    tints = [tone, *rng.sample(others, 2)]
    rise = -rng.uniform(38, 48)
    parts = []
    for i, tint in enumerate(tints):
        x, y = 32 + 32 * i + rng.uniform(-4, 4), rng.uniform(72, 88)
        parts += [
            Part("square", _DARK, x, y + 26, 11, sx=0.08, dy=rise),
            Part("circle", tint, x, y, 15, sy=1.2, dy=rise),
        ]
    return parts, "light blue"


def _rocket(rng: random.Random, tone: RGB) -> Made:
    x, y, dy = rng.uniform(48, 80), rng.uniform(88, 94), -rng.uniform(46, 54)
    parts = [
        Part("triangle", _ORANGE, x, y + 25, 9, sx=0.8, angle=math.pi, dy=dy, pulse=0.3),
        Part("triangle", tone, x, y + 12, 17, sx=1.1, dy=dy),
        Part("circle", _WHITE, x, y, 23, sx=0.5, dy=dy),
        Part("triangle", tone, x, y - 19, 9, dy=dy),
        Part("circle", (0.3, 0.6, 0.95), x, y - 4, 5, dy=dy),
    ]
    return parts, "dark blue"


def _fireworks(rng: random.Random, tone: RGB) -> Made:
    x, y, far = rng.uniform(52, 76), rng.uniform(46, 66), rng.uniform(40, 48)
    sparks = []
    for i in range(12):
        angle = 2 * math.pi * i / 12
        sparks.append(
            Part("circle", tone, x, y, 4.5, dx=far * math.cos(angle), dy=far * math.sin(angle), cover1=0.25)
        )
    return sparks, "black"


def _car(rng: random.Random, tone: RGB) -> Made:
    x, dx = rng.uniform(30, 38), rng.uniform(42, 56)
    if rng.random() < 0.5:
        x, dx = SIDE - x, -dx
    parts = [
        _floor(_DIM, 98),
        Part("square", tone, x, 70, 17, sx=1.0, sy=0.7, dx=dx),
        Part("square", (0.75, 0.90, 0.98), x, 71, 12, sx=0.95, sy=0.6, dx=dx),
        Part("square", tone, x, 85, 30, sx=1.0, sy=0.38, dx=dx),
        Part("circle", _BLACK, x - 13, 96, 7, dx=dx),
        Part("circle", _BLACK, x + 13, 96, 7, dx=dx),
    ]
    return parts, "light blue"


def _tree(rng: random.Random, tone: RGB) -> Made:
    x = rng.uniform(48, 80)
    sway = {"shake": 1.5}
    parts = [
        _floor(_GREEN, 104),
        Part("square", _BROWN, x, 88, 22, sx=0.28),
        Part("circle", (0.08, 0.45, 0.15), x - 14, 62, 17, **sway),
        Part("circle", (0.08, 0.45, 0.15), x + 14, 62, 17, **sway),
        Part("circle", (0.10, 0.50, 0.18), x, 48, 20, **sway),
    ]
    return parts, "light blue"


SCENES: dict[str, Callable[[random.Random, RGB], Made]] = {
    "sunrise": _sunrise,
    "sunset": _sunset,
    "rain": _rain,
    "snowfall": _snowfall,
    "snowman": _snowman,
    "face": _face,
    "house": _house,
    "boat": _boat,
    "traffic light": _traffic_light,
    "balloons": _balloons,
    "rocket": _rocket,
    "fireworks": _fireworks,
    "car": _car,
    "tree": _tree,
}
TONED = ("house", "boat", "rocket", "fireworks", "car")  # those whose colour can be said


def scenes(seed: int) -> Iterator[Clip]:
    """Endless scenes; the same for the same seed."""
    rng = random.Random(seed)
    while True:
        name = rng.choice(tuple(SCENES))
        tone = rng.choice(TONES)
        parts, ground = SCENES[name](rng, tinted(rng, COLOURS[tone]))
        tint = tinted(rng, BACKGROUNDS[ground])
        backdrop = Backdrop(ground, ground)
        yield Clip(
            (), backdrop, (tint, tint), scene=name, parts=tuple(parts), tone=tone if name in TONED else ""
        )
