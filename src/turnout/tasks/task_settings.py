"""Settings of video tasks: how long they and their leases last, how many a tenant may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from turnout.setting_types import SECRET, Count, Limit, Seconds
from turnout.tasks.preset_rules import MAX_PRESETS, PresetGiven, PresetName
from turnout.tasks.task_rules import Limits

_MAX_WORDS = 10_000


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What is checked before a task is accepted: `words` refuse a prompt, and `url` is asked for a verdict, within `deadline_s`;
    `unanswered` is what no verdict counts as. With `results` it is asked again before a result is shown."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    words: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    url: str | None = None
    deadline_s: Annotated[float, Field(gt=0, le=5)] = 3.0
    unanswered: Literal["refuse", "pass"] = "refuse"
    results: bool = True

    def __post_init__(self) -> None:
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("the url of the check is no http URL")
        if len(self.words) > _MAX_WORDS:
            raise ValueError(f"the check has more than {_MAX_WORDS} words")


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`url_ttl_s` is how long the URLs that are signed for clients are good. `video_mark` marks videos as generated, by
    `video_mark_by`. `prompt_model` is the chat model that rewrites prompts, which may take `prompt_deadline_s`. `presets`
    are those that everybody is offered."""

    lease_s: Seconds = 15.0
    retention_s: Seconds = 7 * 86_400.0
    max_attempts: Count = 3
    limit_waiting: Limit = 100
    limit_running: Limit = 8
    limit_submits_per_minute: Limit = 120
    max_image_pixels: Count = 16_000_000
    url_ttl_s: Seconds = 86_400.0
    content_check: CheckSettings | None = None
    content_check_token: str | None = field(default=None, metadata=SECRET)
    video_mark: bool = False
    video_mark_by: Annotated[str, Field(max_length=200)] = "Turnout"
    prompt_model: Annotated[str, Field(max_length=100)] | None = None
    prompt_deadline_s: Annotated[float, Field(gt=0, le=600)] = 60.0
    webhook_secret: str | None = field(default=None, metadata=SECRET)
    presets: Annotated[Mapping[PresetName, PresetGiven], Field(max_length=MAX_PRESETS)] = field(
        default_factory=dict[str, PresetGiven]
    )

    @property
    def limits(self) -> Limits:
        return Limits(self.limit_waiting, self.limit_running, self.limit_submits_per_minute)
