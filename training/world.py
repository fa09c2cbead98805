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
MOTIONS = (
    "left", "right", "up", "down", "still", "growing", "spinning", "shrinking", "bouncing", "circling", "pulsing",
    "shaking", "appearing", "vanishing", "changing",
)  # fmt: skip
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
    "gray": (0.50, 0.50, 0.50),
    "brown": (0.47, 0.28, 0.11),
    "dark blue": (0.06, 0.09, 0.34),
    "light blue": (0.62, 0.82, 0.97),
    "dark green": (0.04, 0.27, 0.14),
    "dark red": (0.36, 0.05, 0.10),
    "beige": (0.94, 0.87, 0.70),
}
BACKGROUNDS: dict[str, RGB] = COLOURS | {"black": (0.05, 0.05, 0.05), "white": (0.95, 0.95, 0.95)}
FIRST_COLOURS = tuple(COLOURS)[:10]
SIZES: dict[str, tuple[float, float]] = {"small": (13, 16), "medium": (19, 23), "large": (27, 32)}
PACES: dict[str, tuple[float, float]] = {"slow": (22, 30), "steady": (38, 50), "fast": (54, 70)}
TURNS: dict[str, tuple[float, float]] = {"slow": (0.5, 0.65), "steady": (0.75, 1.15), "fast": (1.5, 1.9)}
PLACES: dict[str, tuple[float, float]] = {
    "top left": (0, 0),
    "top": (0.5, 0),
    "top right": (1, 0),
    "left side": (0, 0.5),
    "centre": (0.5, 0.5),
    "right side": (1, 0.5),
    "bottom left": (0, 1),
    "bottom": (0.5, 1),
    "bottom right": (1, 1),
}

REACH = 1.2  # no shape reaches further from its centre than this many radii
MARGIN_PX = 2.0
CONTRAST = 0.45  # least RGB distance between a shape and any part of what lies behind it
HELD_OUT_ONE_IN = 8
HEADINGS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
IN_PLACE = ("still", "growing", "spinning", "shrinking", "pulsing", "appearing", "vanishing", "changing")
IN_COMPANY = (
    "left",
    "right",
    "up",
    "down",
    "still",
    "growing",
    "spinning",
    "shrinking",
    "bouncing",
    "shaking",
)


@dataclass(frozen=True, slots=True)
class Backdrop:
    """Plain (`fade` empty), or fading from `first` to `second` going down or going right."""

    first: str
    second: str
    fade: str = ""


@dataclass(frozen=True, slots=True)
class Thing:
    """One shape and its course over the two seconds, in pixels and radians; `colour2` is what it changes to."""

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
    tint2: RGB | None = None
    colour2: str = ""
    place: str = ""
    hop: float = 0.0
    orbit: float = 0.0
    phase: float = 0.0
    shake: float = 0.0
    pulse: float = 0.0
    cover0: float = 1.0
    cover1: float = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a scene: a shape, stretched, on a course of its own."""

    shape: str
    tint: RGB
    x: float
    y: float
    r: float
    sx: float = 1.0
    sy: float = 1.0
    dx: float = 0.0
    dy: float = 0.0
    grow: float = 1.0
    angle: float = 0.0
    turn: float = 0.0
    tint2: RGB | None = None
    hop: float = 0.0
    shake: float = 0.0
    pulse: float = 0.0
    cover0: float = 1.0
    cover1: float = 1.0


@dataclass(frozen=True, slots=True)
class Clip:
    """Up to three things; of several, the first is above (`stacked`) or left of (`beside`) the next. A scene has a name
    and parts instead; a picture that is moved has neither, only `camera`, a motion."""

    things: tuple[Thing, ...]
    backdrop: Backdrop
    tints: tuple[RGB, RGB]
    layout: str = ""
    scene: str = ""
    parts: tuple[Part, ...] = ()
    tone: str = ""
    camera: str = ""
    pace: str = "steady"


def distance(a: RGB, b: RGB) -> float:
    return math.dist(a, b)


def possible(shape: str, motion: str) -> bool:
    """A circle or a ring looks the same while it spins."""
    return not (motion == "spinning" and shape in ("circle", "ring"))


def held_out(colour: str, shape: str, motion: str) -> bool:
    """Whether training must never show this combination, alone or as one of several."""
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


def tinted(rng: random.Random, rgb: RGB) -> RGB:
    r, g, b = (min(1.0, max(0.0, c + rng.uniform(-0.025, 0.025))) for c in rgb)
    return r, g, b


def _start(rng: random.Random, lo: float, hi: float, travel: float) -> float:
    """A start such that both start and start + travel lie within [lo, hi]."""
    low, high = lo - min(0.0, travel), hi - max(0.0, travel)
    return rng.uniform(low, high) if high > low else (low + high) / 2


def _thing(
    rng: random.Random,
    combo: tuple[str, str, str],
    sizes: tuple[str, ...],
    room: tuple[float, float, float, float],
    backdrop: Backdrop,
    placed: bool = False,
) -> Thing:
    colour, shape, motion = combo
    size, pace = rng.choice(sizes), rng.choice(("slow", "steady", "steady", "fast"))
    r = rng.uniform(*SIZES[size])
    r0, r1 = {"growing": (0.55 * r, 1.2 * r), "shrinking": (1.2 * r, 0.5 * r)}.get(motion, (r, r))
    pulse = 0.45 if motion == "pulsing" else 0.0
    shake = rng.uniform(5, 8) if motion == "shaking" else 0.0
    orbit = rng.uniform(18, 26) * (1 if rng.random() < 0.5 else -1) if motion == "circling" else 0.0
    half = (room[2] - room[0]) / 2, (room[3] - room[1]) / 2
    reach = REACH * max(r0, r1) * (1 + pulse) + MARGIN_PX + abs(orbit)
    if reach > min(half):  # a thing that goes in circles must be small enough to
        r0, r1, r = (v * 0.7 for v in (r0, r1, r))
        reach = min(min(half), REACH * max(r0, r1) * (1 + pulse) + MARGIN_PX + abs(orbit))
    left, top, right, bottom = room[0] + reach, room[1] + reach, room[2] - reach, room[3] - reach
    left, right = left + shake, right - shake
    hx, hy = HEADINGS.get(motion, (0, 0))
    space = (right - left) if hx else (bottom - top)
    travel = min(rng.uniform(*PACES[pace]), space)
    dx, dy = hx * travel, hy * travel
    hop = min(rng.uniform(24, 44), bottom - top) if motion == "bouncing" else 0.0
    turn = rng.uniform(*TURNS[pace]) * math.pi if motion == "spinning" else 0.0
    x, y = _start(rng, left, right, dx), _start(rng, top, bottom, dy)
    if hop:
        y = _start(rng, max(top + hop, (top + bottom) / 2), bottom, 0)
    place = ""
    if placed and motion in IN_PLACE and rng.random() < 0.4:
        place = rng.choice(tuple(PLACES))
        px, py = PLACES[place]
        x = left + (right - left) * min(1, max(0, px + rng.uniform(-0.1, 0.1)))
        y = top + (bottom - top) * min(1, max(0, py + rng.uniform(-0.1, 0.1)))
    colour2, tint2 = "", None
    if motion == "changing":
        fits = [c for c in COLOURS if stands_out(c, backdrop) and distance(COLOURS[c], COLOURS[colour]) > 0.5]
        colour2 = rng.choice(fits) if fits else colour
        tint2 = tinted(rng, COLOURS[colour2])
    cover = {"appearing": (0.0, 1.0), "vanishing": (1.0, 0.0)}.get(motion, (1.0, 1.0))
    return Thing(
        shape, colour, motion, size, pace, x, y, dx, dy, r0, r1, turn, tinted(rng, COLOURS[colour]), tint2, colour2,
        place, hop, orbit, rng.uniform(0, 2 * math.pi), shake, pulse, *cover,
    )  # fmt: skip


def clip_of_one(rng: random.Random, combo: tuple[str, str, str]) -> Clip:
    kind = "faded" if rng.random() < 0.2 and _FITS[combo[0], "faded"] else "plain"
    backdrop = rng.choice(_FITS[combo[0], kind])
    thing = _thing(rng, combo, tuple(SIZES), (0, 0, SIDE, SIDE), backdrop, placed=True)
    return Clip((thing,), backdrop, _backdrop_tints(rng, backdrop))


def clip_of_some(rng: random.Random, combos: list[tuple[str, str, str]]) -> Clip | None:
    """Two or three things in lanes of their own, or None where no lanes or no background suit all. They differ in colour,
    or are all the same."""
    moves = {combo[2] for combo in combos}
    same = len(set(combos)) == 1
    if not moves <= set(IN_COMPANY) or (len({combo[0] for combo in combos}) < len(combos) and not same):
        return None
    across, along = moves & {"left", "right", "shaking"}, moves & {"up", "down", "bouncing"}
    if across and along:
        return None
    layout = "stacked" if across else "beside" if along else rng.choice(("stacked", "beside"))
    kind = "faded" if rng.random() < 0.15 else "plain"
    fits = [b for b in _FITS[combos[0][0], kind] if all(stands_out(combo[0], b) for combo in combos[1:])]
    if not fits:
        return None
    lane = SIDE / len(combos)
    rooms = [
        (0, i * lane, SIDE, (i + 1) * lane) if layout == "stacked" else (i * lane, 0, (i + 1) * lane, SIDE)
        for i in range(len(combos))
    ]
    sizes = ("small", "medium") if len(combos) == 2 else ("small",)
    backdrop = rng.choice(fits)
    things = [_thing(rng, combo, sizes, room, backdrop) for combo, room in zip(combos, rooms, strict=True)]
    return Clip(tuple(things), backdrop, _backdrop_tints(rng, backdrop), layout)


def _backdrop_tints(rng: random.Random, backdrop: Backdrop) -> tuple[RGB, RGB]:
    first = tinted(rng, BACKGROUNDS[backdrop.first])
    return first, (tinted(rng, BACKGROUNDS[backdrop.second]) if backdrop.fade else first)


def clips(seed: int, combos: list[tuple[str, str, str]], two_share: float = 0.25) -> Iterator[Clip]:
    """Endless clips made of `combos` only; the same for the same seed. Of those with several things, one in five has
    three, and one in four shows the same thing again."""
    rng = random.Random(seed)
    company = [combo for combo in combos if combo[2] in IN_COMPANY]
    while True:
        if rng.random() >= two_share:
            yield clip_of_one(rng, rng.choice(combos))
            continue
        some = None
        while some is None:
            count = 3 if rng.random() < 0.2 else 2
            again = rng.random() < 0.25
            chosen = [rng.choice(company)] * count if again else [rng.choice(company) for _ in range(count)]
            some = clip_of_some(rng, chosen)
        yield some
