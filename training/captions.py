"""Wordings for a clip, in English, in Chinese and in a mixture. What can come out of here is all that training reads."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from itertools import chain

from training.chinese import CHINESE
from training.english import ENGLISH
from training.grammar import Grammar
from training.world import HEADINGS, UNSEEN, Clip, Thing, clips

UNKNOWN = "<unk>"
STRANGE = "龘"  # a character that no caption holds: the tokenizer does not know it
_PACED = (*HEADINGS, "spinning")
_DOINGS = ("motion", "v", "v3", "vg", "vb", "vp", "way", "noun")
_BEGINNINGS = (
    "star",
    "ring",
    "red",
    "up",
    "down",
    "right",
    "box",
    "tan",
    "gold",
    "cross",
    "go",
    "be",
    "on",
    "in",
    "at",
    "plus",
)
_GLUE = "bcdfghjklmnpqrstvwxz", "aeiouy"
START = "CAPTION"


def _mixed(base: Grammar, other: Grammar) -> Grammar:
    """`base` with the other language's words for colours, shapes and backgrounds."""
    taken = {name: other.words[name] for name in ("colour", "shape", "ground") if name in base.words}
    return Grammar(base.rules, base.words | taken)


ENGLISH_MIXED, CHINESE_MIXED = _mixed(ENGLISH, CHINESE), _mixed(CHINESE, ENGLISH)


def _of_thing(thing: Thing) -> dict[str, str]:
    motion = thing.motion
    facts = dict.fromkeys(_DOINGS, motion)
    pace = thing.pace if motion in _PACED else "any"
    return facts | {
        "colour": thing.colour, "colour2": thing.colour2, "shape": thing.shape, "shapes": thing.shape, "size": thing.size,
        "pace": pace, "paced": pace, "place": thing.place,
    }  # fmt: skip


def _telling(clip: Clip) -> str:
    things = clip.things
    if len(things) == 1:
        if things[0].place:
            return "placed"
        motion = things[0].motion
        return "pushed" if motion in HEADINGS else "changing" if motion == "changing" else "one"
    if is_same(clip):
        return "same"
    if len(things) == 3:
        return "three"
    return "alike" if things[0].motion == things[1].motion else "two"


def is_same(clip: Clip) -> bool:
    """Whether the clip shows one thing several times."""
    looks = {(t.colour, t.shape, t.motion) for t in clip.things}
    return len(clip.things) > 1 and len(looks) == 1


def facts_of(clip: Clip, telling: str = "") -> Mapping[str, Mapping[str, str]]:
    shared = {
        "ground": clip.backdrop.first, "ground2": clip.backdrop.second, "fade": clip.backdrop.fade,
        "BG": "faded" if clip.backdrop.fade else "plain", "scene": clip.scene, "scene_3": clip.scene, "tone": clip.tone,
        "camera": clip.camera, "count": str(len(clip.things)),
    }  # fmt: skip
    shared |= dict.fromkeys(("layout", "over", "under", "over1", "over2", "over3", "under1"), clip.layout)
    if clip.camera:
        motion = dict.fromkeys(_DOINGS, clip.camera)
        return {"a": shared | motion | {"pace": clip.pace, "paced": clip.pace}}
    shared["TELL"] = telling or (_telling(clip) if clip.things else "")
    return dict(zip("abc", (shared | _of_thing(t) for t in clip.things), strict=False)) or {"a": shared}


def caption(rng: random.Random, clip: Clip, grammar: Grammar, start: str = "") -> str:
    """Says everything: things, motions, background, in one of many wordings."""
    start = start or ("SCENE" if clip.scene else "PICTURE" if clip.camera else "DRESSED")
    telling = ""
    if start != "SCENE" and len(clip.things) == 1 and clip.things[0].place and rng.random() < 0.3:
        telling = "one"  # a place is not always said
    said = grammar.say(rng, f"{{{start}}}", facts_of(clip, telling))
    said = re.sub(r"\ba (?=[aeiou])", "an ", said)
    return " ".join(said.split())


def _junk(rng: random.Random) -> str:
    """A word that means nothing, at times one that begins like a word of ours."""
    hard, soft = _GLUE
    if rng.random() < 0.15:
        return (
            rng.choice(_BEGINNINGS) + rng.choice(hard) + rng.choice(soft) + rng.choice(("ng", "n", "t", "rs"))
        )
    return "".join(rng.choice(hard) + rng.choice(soft) for _ in range(rng.randint(1, 3))) + rng.choice(
        ("", "n", "t", "s")
    )


def _typo(rng: random.Random, word: str) -> str:
    i = rng.randrange(len(word) - 1)
    return rng.choice(
        (
            word[:i] + word[i + 1] + word[i] + word[i + 2 :],
            word[:i] + word[i + 1 :],
            word[: i + 1] + word[i:],
            word[:i] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[i + 1 :],
        )
    )


def roughened(rng: random.Random, said: str, chinese: bool) -> str:
    """As people type: no articles, no commas, slips, words that mean nothing to us."""
    if rng.random() < 0.12:
        said = re.sub(r"[,.。!?:;、]", " " if rng.random() < 0.8 else "", said)
    if chinese:
        if rng.random() < 0.06:
            said = said.replace("的", "")
        if rng.random() < 0.05 and len(said) > 8:
            i = rng.randrange(len(said))
            said = said[:i] + said[i + 1 :]
        for _ in range(rng.randint(1, 5) if rng.random() < 0.25 else 0):
            i = rng.randint(0, len(said))
            said = said[:i] + STRANGE + said[i:]
        return said
    if rng.random() < 0.08:
        said = re.sub(r"\b(a|an|the) ", "", said)
    words = said.split()
    if rng.random() < 0.1:
        long = [i for i, word in enumerate(words) if len(word) > 3 and word.isalpha()]
        for i in rng.sample(long, min(len(long), rng.randint(1, 2))):
            words[i] = _typo(rng, words[i])
    for _ in range(rng.randint(1, 4) if rng.random() < 0.25 else 0):
        words.insert(rng.randint(0, len(words)), _junk(rng))
    return " ".join(words)


def loose_caption(rng: random.Random, clip: Clip) -> str:
    """Half in Chinese; mostly `caption`; at times less is said, or something else besides."""
    chinese = rng.random() < 0.5
    grammar = CHINESE if chinese else ENGLISH
    if rng.random() < 0.03:
        grammar = CHINESE_MIXED if chinese else ENGLISH_MIXED
    start = ""
    if clip.things:
        draw = rng.random()
        if draw < 0.08:
            start = "BARE"
        elif draw < 0.2 and len(clip.things) == 1:
            start = "SPLIT"
        elif draw < 0.24 and len(clip.things) == 1:
            start = "ONWARD"  # what a given picture shows need not be said
        elif draw < 0.36 and len(clip.things) == 1 and clip.things[0].motion == "still":
            start = "UNMOVED"  # what is not said to move stands still
    return roughened(rng, caption(rng, clip, grammar, start), chinese)


def prompts(count: int, seed: int) -> list[tuple[Clip, str]]:
    """Held-out combinations with their prompts, in both languages by turns: four of five show one thing."""
    rng, out = random.Random(seed), []
    ones, more = clips(seed, UNSEEN, 0.0), clips(seed + 1, UNSEEN, 1.0)
    for i in range(count):
        clip = next(more if i % 5 == 4 else ones)
        out.append((clip, caption(rng, clip, (ENGLISH, CHINESE)[i // 5 % 2])))
    return out


def can_say(text: str) -> bool:
    """Whether training could ever word anything so (slips and meaningless words apart)."""
    return any(
        grammar.can_say(text, start)
        for grammar in (ENGLISH, CHINESE, ENGLISH_MIXED, CHINESE_MIXED)
        for start in ("DRESSED", "BARE", "SPLIT", "ONWARD", "UNMOVED", "SCENE", "PICTURE")
    )


def vocabulary() -> list[str]:
    """Every word and every character that a caption can hold, sorted."""
    said = " ".join(chain(ENGLISH.literals(), CHINESE.literals())).lower()
    whole = re.findall(r"[a-z0-9]+", said) + re.findall(r"[a-z0-9]+", said.replace("'", ""))
    # Of a word in -ish the tokenizer makes two pieces: so it can read those that no caption holds.
    whole = [word for word in whole if not (word.endswith("ish") and word[:-3] in whole)]
    return sorted({*whole, *re.findall(r"[一-鿿]", said)})
