"""Settings of video tasks: how long they and their leases last, how many a tenant may have."""

from dataclasses import dataclass, field

from turnout.setting_types import SECRET, Count, Limit, Seconds
from turnout.tasks.task_rules import Limits


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`url_ttl_s` is how long the URLs that are signed for clients are good. `video_mark` marks videos as generated, by
    `video_mark_by`."""

    lease_s: Seconds = 15.0
    retention_s: Seconds = 7 * 86_400.0
    max_attempts: Count = 3
    limit_waiting: Limit = 100
    limit_running: Limit = 8
    limit_submits_per_minute: Limit = 120
    max_image_pixels: Count = 16_000_000
    url_ttl_s: Seconds = 86_400.0
    video_mark: bool = False
    video_mark_by: Annotated[str, Field(max_length=200)] = "Turnout"
    webhook_secret: str | None = field(default=None, metadata=SECRET)

    @property
    def limits(self) -> Limits:
        return Limits(self.limit_waiting, self.limit_running, self.limit_submits_per_minute)
