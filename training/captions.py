"""Everyday wordings for a clip. The vocabulary of the tokenizer is whatever can come out of here."""

from __future__ import annotations

import random

from training.world import FADED, PLAIN, UNSEEN, Backdrop, Clip, Thing, clips

SHAPE_WORDS = {
    "circle": ("circle", "circle", "ball", "disc", "dot"),
    "square": ("square", "square", "box", "block"),
    "triangle": ("triangle",),
    "star": ("star",),
    "heart": ("heart",),
    "ring": ("ring", "ring", "donut", "hoop"),
    "cross": ("cross", "cross", "plus sign", "plus"),
}
COLOUR_WORDS = {
    "red": ("red", "red", "bright red", "scarlet"),
    "orange": ("orange",),
    "yellow": ("yellow", "yellow", "bright yellow", "golden"),
    "green": ("green",),
    "cyan": ("cyan", "cyan", "turquoise", "teal"),
    "blue": ("blue", "blue", "bright blue"),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink",),
    "white": ("white",),
    "black": ("black",),
}
BACKGROUND_WORDS = {
    "black": ("black", "black", "pitch black"),
    "white": ("white",),
    "gray": ("gray", "grey"),
    "dark blue": ("dark blue", "navy blue", "navy", "deep blue"),
    "light blue": ("light blue", "sky blue", "pale blue"),
    "dark green": ("dark green", "deep green", "forest green"),
    "dark red": ("dark red", "deep red", "maroon"),
    "beige": ("beige", "cream", "sand colored"),
}
SIZE_WORDS = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium", "medium sized"),
    "large": ("large", "big", "huge"),
}
PACE_WORDS = {"slow": ("slowly", "gently"), "steady": ("steadily",), "fast": ("quickly", "fast", "rapidly")}

# (third person, gerund, plural)
_VERBS = (
    ("moves", "moving", "move"),
    ("slides", "sliding", "slide"),
    ("drifts", "drifting", "drift"),
    ("glides", "gliding", "glide"),
    ("travels", "traveling", "travel"),
    ("goes", "going", "go"),
    ("floats", "floating", "float"),
    ("flies", "flying", "fly"),
)
_WAYS = {
    "left": ("left", "to the left", "leftward", "towards the left", "from right to left"),
    "right": ("right", "to the right", "rightward", "towards the right", "from left to right"),
    "up": ("up", "upward", "upwards", "to the top", "from bottom to top"),
    "down": ("down", "downward", "downwards", "to the bottom", "from top to bottom"),
}
_OWN_VERBS = {
    "left": (),
    "right": (),
    "up": (("rises", "rising", "rise"), ("climbs", "climbing", "climb")),
    "down": (("falls", "falling", "fall"), ("sinks", "sinking", "sink"), ("drops", "dropping", "drop")),
    "still": (
        ("stays still", "staying still", "stay still"),
        ("stands still", "standing still", "stand still"),
        ("does not move", "not moving", "do not move"),
        ("rests", "resting", "rest"),
        ("is still", "sitting still", "are still"),
        ("is motionless", "motionless", "are motionless"),
    ),
    "growing": (
        ("grows", "growing", "grow"),
        ("gets bigger", "getting bigger", "get bigger"),
        ("grows larger", "growing larger", "grow larger"),
        ("expands", "expanding", "expand"),
    ),
    "spinning": (
        ("spins", "spinning", "spin"),
        ("rotates", "rotating", "rotate"),
        ("turns around", "turning around", "turn around"),
        ("spins in place", "spinning in place", "spin in place"),
        ("is spinning", "spinning around", "are spinning"),
    ),
}
_OPENINGS = (
    "a video of",
    "a clip of",
    "show",
    "show me",
    "please draw",
    "draw",
    "an animation of",
    "here is",
    "a short video showing",
    "make a video of",
    "i want to see",
    "there is",
    "imagine",
    "a scene with",
)
_FILLERS = (
    "simple",
    "clean",
    "minimal",
    "colorful",
    "flat",
    "smooth",
    "nice",
    "beautiful",
    "bright",
    "animated",
    "high quality",
    "cinematic",
    "very",
    "solid",
    "cute",
    "lovely",
    "4k",
    "hd",
    "detailed",
    "sharp",
)
_CLOSINGS = (
    "nothing else",
    "minimal style",
    "simple animation",
    "flat colors",
    "high quality",
    "smooth motion",
    "two seconds long",
    "cartoon style",
    "centered",
    "4k",
)
UNKNOWN = "<unk>"


def action(rng: random.Random, thing: Thing, form: int) -> str:
    """What the thing does; form 0 third person, 1 gerund, 2 plural."""
    own = _OWN_VERBS[thing.motion]
    if thing.motion in _WAYS and (not own or rng.random() < 0.7):
        said = f"{rng.choice(_VERBS)[form]} {rng.choice(_WAYS[thing.motion])}"
    else:
        said = rng.choice(own)[form]
    if thing.motion in _WAYS and rng.random() < (0.35 if thing.pace != "steady" else 0.1):
        pace = rng.choice(PACE_WORDS[thing.pace])
        said = f"{pace} {said}" if form == 1 and rng.random() < 0.4 else f"{said} {pace}"
    return said


def noun(rng: random.Random, thing: Thing, article: str = "a") -> str:
    words = [rng.choice(COLOUR_WORDS[thing.colour]), rng.choice(SHAPE_WORDS[thing.shape])]
    if rng.random() < 0.45:
        words.insert(0, rng.choice(SIZE_WORDS[thing.size]))
    if rng.random() < 0.06:
        words.insert(0, rng.choice(_FILLERS))
    said = " ".join(words)
    if article == "a" and said[0] in "aeiou":
        article = "an"
    return f"{article} {said}".strip()


def behind(rng: random.Random, backdrop: Backdrop) -> str:
    first = rng.choice(BACKGROUND_WORDS[backdrop.first])
    second = rng.choice(BACKGROUND_WORDS[backdrop.second])
    ground = rng.choice(("background", "background", "background", "backdrop"))
    if not backdrop.fade:
        article = "an" if first[0] in "aeiou" else "a"
        plain = rng.choice(("", "", "plain ", "solid "))
        if plain:
            article = "a"
        return rng.choice(
            (
                f"on {article} {plain}{first} {ground}",
                f"against {article} {plain}{first} {ground}",
                f"with {article} {plain}{first} {ground}",
                f"on {plain}{first}",
                f"over {article} {plain}{first} {ground}",
                f"in front of {article} {first} {ground}",
            )
        )
    if backdrop.fade == "down":
        ends = rng.choice(
            (
                f"from {first} at the top to {second} at the bottom",
                f"from {first} down to {second}",
                f"{first} at the top and {second} at the bottom",
                f"from top to bottom from {first} to {second}",
            )
        )
    else:
        ends = rng.choice(
            (
                f"from {first} on the left to {second} on the right",
                f"{first} on the left and {second} on the right",
                f"from left to right from {first} to {second}",
            )
        )
    return rng.choice(
        (
            f"on a gradient {ground} {ends}",
            f"on a {ground} fading {ends}",
            f"over a gradient {ends}",
            f"against a {ground} that fades {ends}",
            f"with a gradient {ends}",
        )
    )


def _one(rng: random.Random, thing: Thing) -> str:
    style = rng.random()
    if style < 0.45:
        return f"{noun(rng, thing)} {action(rng, thing, 1)}"
    if style < 0.85:
        return f"{noun(rng, thing)} {action(rng, thing, 0)}"
    return f"{noun(rng, thing)} that {action(rng, thing, 0)}"


def _two(rng: random.Random, clip: Clip) -> str:
    a, b = clip.things
    under = (
        rng.choice(("below", "under"))
        if clip.layout == "stacked"
        else rng.choice(("right of", "to the right of"))
    )
    over = "above" if clip.layout == "stacked" else rng.choice(("left of", "to the left of"))
    if a.motion == b.motion and rng.random() < 0.5:
        both = rng.choice(("both ", ""))
        return rng.choice(
            (
                f"{noun(rng, a)} {over} {noun(rng, b)} , {both}{action(rng, a, 1)}",
                f"{noun(rng, a)} and {noun(rng, b)} {both}{action(rng, a, 1)}",
                f"{noun(rng, a)} and {noun(rng, b)} {both}{action(rng, a, 2)}",
            )
        )
    if rng.random() < 0.25:  # the order of telling is not the order of places
        return f"{noun(rng, b)} {action(rng, b, 1)} {under} {noun(rng, a)} {action(rng, a, 1)}"
    return rng.choice(
        (
            f"{noun(rng, a)} {action(rng, a, 1)} {over} {noun(rng, b)} {action(rng, b, 1)}",
            f"{noun(rng, a)} {action(rng, a, 0)} {over} {noun(rng, b)} that {action(rng, b, 0)}",
            f"{noun(rng, a)} {action(rng, a, 0)} and {noun(rng, b)} {action(rng, b, 0)}",
            f"{noun(rng, a)} {action(rng, a, 1)} and {noun(rng, b)} {action(rng, b, 1)}",
            f"{noun(rng, a)} {action(rng, a, 0)} while {noun(rng, b)} {action(rng, b, 0)}",
        )
    )


def caption(rng: random.Random, clip: Clip) -> str:
    """Says everything: things, motions, background, in one of many wordings."""
    told = _one(rng, clip.things[0]) if len(clip.things) == 1 else _two(rng, clip)
    ground = behind(rng, clip.backdrop)
    told = f"{told} {ground}" if rng.random() < 0.75 else f"{ground} , {told}"
    if rng.random() < 0.2:
        told = f"{rng.choice(_OPENINGS)} {told}"
    if rng.random() < 0.08:
        told = f"{told} , {rng.choice(_CLOSINGS)}"
    return f"{told} ." if rng.random() < 0.15 else told


def loose_caption(rng: random.Random, clip: Clip) -> str:
    """Mostly `caption`; at times less is said, or words stand in it that mean nothing to us."""
    draw = rng.random()
    if len(clip.things) == 1 and draw < 0.12:
        thing = clip.things[0]
        shape = rng.choice(SHAPE_WORDS[thing.shape])
        return rng.choice(
            (
                f"{noun(rng, thing)} {action(rng, thing, 1)}",
                f"{noun(rng, thing)} {action(rng, thing, 0)}",
                f"it {action(rng, thing, 0)}",
                f"the {shape} {action(rng, thing, 0)}",
                action(rng, thing, 1),
                f"the {rng.choice(COLOUR_WORDS[thing.colour])} {shape} {action(rng, thing, 0)}",
                noun(rng, thing),
                f"{noun(rng, thing)} {behind(rng, clip.backdrop)}",
            )
        )
    told = caption(rng, clip)
    if draw > 0.9:
        words = told.split()
        for _ in range(rng.randint(1, 3)):
            words.insert(rng.randint(0, len(words)), UNKNOWN)
        told = " ".join(words)
    return told


def prompts(count: int, seed: int) -> list[tuple[Clip, str]]:
    """Held-out clips with their prompts: four of five show one thing, the rest two, all in unseen combinations."""
    rng, out = random.Random(seed), []
    ones, twos = clips(seed, UNSEEN, 0.0), clips(seed + 1, UNSEEN, 1.0)
    for i in range(count):
        clip = next(twos if i % 5 == 4 else ones)
        out.append((clip, caption(rng, clip)))
    return out


def vocabulary() -> list[str]:
    """Every word a caption can hold, sorted."""
    said: list[str] = [
        "it",
        "the",
        "a",
        "an",
        "that",
        "both",
        "and",
        "while",
        "above",
        "below",
        "under",
        "of",
        "to",
        "right",
        "left",
        ",",
        ".",
        "on",
        "against",
        "with",
        "over",
        "in",
        "front",
        "plain",
        "solid",
        "background",
        "backdrop",
        "gradient",
        "fading",
        "fades",
        "from",
        "at",
        "top",
        "bottom",
        "down",
    ]
    for table in (SHAPE_WORDS, COLOUR_WORDS, BACKGROUND_WORDS, SIZE_WORDS, PACE_WORDS, _WAYS):
        said += [word for words in table.values() for word in words]
    said += [form for verbs in (_VERBS, *_OWN_VERBS.values()) for verb in verbs for form in verb]
    said += [*_OPENINGS, *_FILLERS, *_CLOSINGS]
    rng = random.Random(0)
    said += [behind(rng, b) for b in (*PLAIN, *FADED) for _ in range(8)]
    return sorted({word for text in said for word in text.split()})
