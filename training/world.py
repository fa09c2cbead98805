"""What a clip can show: shapes, colours, motions, backgrounds, and which combinations training never sees.

Pure Python. A clip is described here, drawn by `draw`, worded by `captions` and read back by `checker`.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

SIDE = 128
FRAMES = 17
FPS = 8

RGB = tuple[float, float, float]

SHAPES = ("circle", "square", "triangle", "star", "heart", "ring", "cross")
MOTIONS = ("left", "right", "up", "down", "still", "growing", "spinning")
COLOURS: dict[str, RGB] = {
    "red": (0.88, 0.11, 0.12),
    "orange": (1.00, 0.54, 0.06),
    "yellow": (0.98, 0.88, 0.12),
    "green": (0.14, 0.66, 0.22),
    "cyan": (0.10, 0.80, 0.82),
    "blue": (0.12, 0.26, 0.90),
    "purple": (0.54, 0.15, 0.74),
    "pink": (1.00, 0.50, 0.76),
    "white": (0.97, 0.97, 0.97),
    "black": (0.03, 0.03, 0.03),
}
BACKGROUNDS: dict[str, RGB] = {
    "black": (0.05, 0.05, 0.05),
    "white": (0.95, 0.95, 0.95),
    "gray": (0.50, 0.50, 0.50),
    "dark blue": (0.06, 0.09, 0.34),
    "light blue": (0.62, 0.82, 0.97),
    "dark green": (0.04, 0.27, 0.14),
    "dark red": (0.36, 0.05, 0.10),
    "beige": (0.94, 0.87, 0.70),
}
SIZES: dict[str, tuple[float, float]] = {"small": (13, 16), "medium": (19, 23), "large": (27, 32)}
PACES: dict[str, tuple[float, float]] = {"slow": (22, 30), "steady": (38, 50), "fast": (54, 70)}

REACH = 1.2  # no shape reaches further from its centre than this many radii
MARGIN_PX = 2.0
CONTRAST = 0.45  # least RGB distance between a shape and any part of what lies behind it
HELD_OUT_ONE_IN = 8
HEADINGS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


@dataclass(frozen=True, slots=True)
class Backdrop:
    """Plain (`fade` empty), or fading from `first` to `second` going down or going right."""

    first: str
    second: str
    fade: str = ""


@dataclass(frozen=True, slots=True)
class Thing:
    """One shape and its course over the two seconds, in pixels and radians."""

    shape: str
    colour: str
    motion: str
    size: str
    pace: str
    x: float
    y: float
    dx: float
    dy: float
    r0: float
    r1: float
    turn: float
    tint: RGB


@dataclass(frozen=True, slots=True)
class Clip:
    """One or two things; of two, the first is above (`stacked`) or left of (`beside`) the second."""

    things: tuple[Thing, ...]
    backdrop: Backdrop
    tints: tuple[RGB, RGB]
    layout: str = ""


def distance(a: RGB, b: RGB) -> float:
    return math.dist(a, b)


def possible(shape: str, motion: str) -> bool:
    """A circle or a ring looks the same while it spins."""
    return not (motion == "spinning" and shape in ("circle", "ring"))


def held_out(colour: str, shape: str, motion: str) -> bool:
    """Whether training must never show this combination, alone or as one of two."""
    digest = hashlib.blake2s(f"{colour}|{shape}|{motion}".encode()).digest()
    return digest[0] % HELD_OUT_ONE_IN == 0


def stands_out(colour: str, backdrop: Backdrop) -> bool:
    first, second = BACKGROUNDS[backdrop.first], BACKGROUNDS[backdrop.second]
    steps = [i / 10 for i in range(11)]
    line = [tuple(p + (q - p) * s for p, q in zip(first, second, strict=True)) for s in steps]
    return all(distance(COLOURS[colour], point) >= CONTRAST for point in line)


def combinations(*, unseen: bool) -> list[tuple[str, str, str]]:
    return [
        (colour, shape, motion)
        for colour in COLOURS
        for shape in SHAPES
        for motion in MOTIONS
        if possible(shape, motion) and held_out(colour, shape, motion) is unseen
    ]


def _backdrops() -> tuple[list[Backdrop], list[Backdrop]]:
    plain = [Backdrop(name, name) for name in BACKGROUNDS]
    faded = [
        Backdrop(a, b, fade)
        for a in BACKGROUNDS
        for b in BACKGROUNDS
        for fade in ("down", "right")
        if distance(BACKGROUNDS[a], BACKGROUNDS[b]) >= CONTRAST
    ]
    return plain, faded


PLAIN, FADED = _backdrops()
SEEN, UNSEEN = combinations(unseen=False), combinations(unseen=True)
_FITS = {
    (colour, kind): [b for b in choices if stands_out(colour, b)]
    for colour in COLOURS
    for kind, choices in (("plain", PLAIN), ("faded", FADED))
}


def _tint(rng: random.Random, rgb: RGB) -> RGB:
    r, g, b = (min(1.0, max(0.0, c + rng.uniform(-0.025, 0.025))) for c in rgb)
    return r, g, b


def _place(rng: random.Random, lo: float, hi: float, travel: float) -> float:
    """A start such that both start and start + travel lie within [lo, hi]."""
    low, high = lo - min(0.0, travel), hi - max(0.0, travel)
    return rng.uniform(low, high) if high > low else (low + high) / 2


def _thing(
    rng: random.Random,
    combo: tuple[str, str, str],
    sizes: tuple[str, ...],
    room: tuple[float, float, float, float],
) -> Thing:
    colour, shape, motion = combo
    size, pace = rng.choice(sizes), rng.choice(("slow", "steady", "steady", "fast"))
    r = rng.uniform(*SIZES[size])
    r0, r1 = (0.55 * r, 1.2 * r) if motion == "growing" else (r, r)
    reach = REACH * max(r0, r1) + MARGIN_PX
    left, top, right, bottom = room[0] + reach, room[1] + reach, room[2] - reach, room[3] - reach
    hx, hy = HEADINGS.get(motion, (0, 0))
    space = (right - left) if hx else (bottom - top)
    travel = min(rng.uniform(*PACES[pace]), space)
    dx, dy = hx * travel, hy * travel
    turn = rng.uniform(0.75, 1.15) * math.pi if motion == "spinning" else 0.0
    return Thing(
        shape,
        colour,
        motion,
        size,
        pace,
        _place(rng, left, right, dx),
        _place(rng, top, bottom, dy),
        dx,
        dy,
        r0,
        r1,
        turn,
        _tint(rng, COLOURS[colour]),
    )


def clip_of_one(rng: random.Random, combo: tuple[str, str, str]) -> Clip:
    kind = "faded" if rng.random() < 0.3 and _FITS[combo[0], "faded"] else "plain"
    backdrop = rng.choice(_FITS[combo[0], kind])
    thing = _thing(rng, combo, tuple(SIZES), (0, 0, SIDE, SIDE))
    return Clip((thing,), backdrop, _backdrop_tints(rng, backdrop))


def clip_of_two(rng: random.Random, first: tuple[str, str, str], second: tuple[str, str, str]) -> Clip | None:
    """Two things in lanes of their own, or None where no lanes or no background suit both."""
    moves = {first[2], second[2]}
    if first[0] == second[0] or (moves & {"left", "right"} and moves & {"up", "down"}):
        return None
    if moves & {"left", "right"}:
        layout = "stacked"
    elif moves & {"up", "down"}:
        layout = "beside"
    else:
        layout = rng.choice(("stacked", "beside"))
    kind = "faded" if rng.random() < 0.2 else "plain"
    fits = [b for b in _FITS[first[0], kind] if stands_out(second[0], b)]
    if not fits:
        return None
    half = SIDE / 2
    rooms = (
        ((0, 0, SIDE, half), (0, half, SIDE, SIDE))
        if layout == "stacked"
        else ((0, 0, half, SIDE), (half, 0, SIDE, SIDE))
    )
    sizes = ("small", "medium")
    backdrop = rng.choice(fits)
    things = tuple(
        _thing(rng, combo, sizes, room) for combo, room in zip((first, second), rooms, strict=True)
    )
    return Clip(things, backdrop, _backdrop_tints(rng, backdrop), layout)


def _backdrop_tints(rng: random.Random, backdrop: Backdrop) -> tuple[RGB, RGB]:
    first = _tint(rng, BACKGROUNDS[backdrop.first])
    return first, (_tint(rng, BACKGROUNDS[backdrop.second]) if backdrop.fade else first)


def clips(seed: int, combos: list[tuple[str, str, str]], two_share: float = 0.25) -> Iterator[Clip]:
    """Endless clips made of `combos` only; the same for the same seed."""
    rng = random.Random(seed)
    while True:
        if rng.random() >= two_share:
            yield clip_of_one(rng, rng.choice(combos))
            continue
        pair = None
        while pair is None:
            pair = clip_of_two(rng, rng.choice(combos), rng.choice(combos))
        yield pair
