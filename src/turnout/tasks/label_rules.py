"""What an owner says of a video that is there: that it is a favourite, and tags; and which videos a search lets through. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.tasks.task_rules import State, Task

MAX_TAGS = 10
MAX_TAG_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Labels:
    favourite: bool = False
    tags: tuple[str, ...] = ()


NO_LABELS = Labels()


def tidy(tags: Iterable[str]) -> tuple[str, ...]:
    """Each once, without `#`. Raises ValueError."""
    found: dict[str, None] = {}
    for said in tags:
        tag = said.strip().lstrip("#").strip()
        if not tag or len(tag) > MAX_TAG_CHARACTERS or not tag.isprintable() or any(c.isspace() for c in tag):
            raise ValueError(f"a tag is one word of at most {MAX_TAG_CHARACTERS} characters.")
        found[tag] = None
    if len(found) > MAX_TAGS:
        raise ValueError(f"has more than {MAX_TAGS} tags.")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class VideoFilter:
    """All that is given must be so: every word occurs in the prompt, in any order and case."""

    words: tuple[str, ...] = ()
    tag: str | None = None
    favourite: bool = False
    model: str | None = None
    status: State | None = None

    @property
    def anything(self) -> bool:
        return self == _ANYTHING

    def lets_through(self, task: Task, labels: Labels) -> bool:
        if self.model not in (None, task.model) or self.status not in (None, task.state):
            return False
        if (self.favourite and not labels.favourite) or (
            self.tag is not None and self.tag not in labels.tags
        ):
            return False
        prompt = task.spec.prompt.casefold()
        return all(word in prompt for word in self.words)


_ANYTHING = VideoFilter()


def words_of(query: str) -> tuple[str, ...]:
    return tuple(query.casefold().split())
