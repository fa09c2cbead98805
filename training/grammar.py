"""A grammar as data: templates with slots, from which captions are drawn and against which a text can be parsed.

`{NP}` is a rule, `{colour}` a word for what the clip shows, `{b.NP}` the same said of thing b. Drawing picks at random among
what is true of the clip; parsing asks whether any clip at all could be worded so, blind to spaces, punctuation and articles.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

Facts = Mapping[str, Mapping[str, str]]  # thing → attribute → value
Piece = str | tuple[str, str]  # a literal, or (thing or "", name)

_SLOT = re.compile(r"\{(?:(\w+)\.)?(\w+)\}")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


@cache
def bare(text: str) -> str:
    """Letters, digits and characters alone: what parsing compares."""
    return "".join(c for c in _ARTICLES.sub(" ", text.lower()) if c.isalnum())


@cache
def pieces(template: str) -> tuple[Piece, ...]:
    out: list[Piece] = []
    at = 0
    for slot in _SLOT.finditer(template):
        if slot.start() > at:
            out.append(template[at : slot.start()])
        out.append((slot[1] or "", slot[2]))
        at = slot.end()
    if at < len(template):
        out.append(template[at:])
    return tuple(out)


class Grammar:
    """`rules`: name → templates. `words`: attribute → value → templates."""

    def __init__(self, rules: Mapping[str, Sequence[str]], words: Mapping[str, Mapping[str, Sequence[str]]]):
        self.rules, self.words = rules, words

    def say(self, rng: random.Random, template: str, facts: Facts, of: str = "a") -> str:
        """One wording; the bound thing of a slot without one is that of the slot around it."""
        out = []
        for piece in pieces(template):
            if isinstance(piece, str):
                out.append(piece)
                continue
            thing, name = piece[0] or of, piece[1]
            choices = self.rules.get(name) or self.words[name][facts[thing][name]]
            out.append(self.say(rng, choices[int(rng.random() * len(choices))], facts, thing))
        return "".join(out)

    def choices(self, name: str) -> Iterator[str]:
        if name in self.rules:
            yield from self.rules[name]
        else:
            for wordings in self.words[name].values():
                yield from wordings

    def literals(self) -> Iterator[str]:
        """Every text that stands in a template."""
        for name in (*self.rules, *self.words):
            for template in self.choices(name):
                yield from (piece for piece in pieces(template) if isinstance(piece, str))

    def can_say(self, text: str, start: str) -> bool:
        """Whether the rule `start` has a derivation for `text`."""
        goal, seen = bare(text), {}

        def ends(name: str, at: int) -> frozenset[int]:
            if (name, at) not in seen:
                seen[name, at] = frozenset()  # no rule begins with itself
                seen[name, at] = frozenset(e for template in self.choices(name) for e in along(template, at))
            return seen[name, at]

        def along(template: str, at: int) -> set[int]:
            places = {at}
            for piece in pieces(template):
                if isinstance(piece, str):
                    literal = bare(piece)
                    places = {p + len(literal) for p in places if goal.startswith(literal, p)}
                else:
                    places = {e for p in places for e in ends(piece[1], p)}
                if not places:
                    break
            return places

        return len(goal) in ends(start, 0)
