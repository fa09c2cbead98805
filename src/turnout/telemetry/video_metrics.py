"""How long each stage of a video takes, from the events of all tasks: the same at each gateway, so take one.

An event does not name its model, so the times of an attempt are kept until it ends, when the task is read anyway.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from turnout.tasks.stage_rules import STEP, StageClock
from turnout.tasks.task_rules import (
    Cancelled,
    Claimed,
    Event,
    Expired,
    Failed,
    Finished,
    Interrupted,
    Progressed,
    Recorded,
    Submitted,
    Task,
    TaskId,
)
from turnout.telemetry import metric_table as table
from turnout.telemetry.exposition import HistogramMetric
from turnout.telemetry.histogram import Histogram

_MAX_FOLLOWED = 10_000
_MAX_TIMES = 500  # of one attempt

_Name = TypeVar("_Name")


@dataclass(slots=True)
class _Story:
    """`promised` is when the task was first said to end."""

    clock: StageClock = field(default_factory=StageClock)
    times: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    began: float | None = None
    promised: float | None = None


class VideoMetrics:
    def __init__(self) -> None:
        self._stages: dict[tuple[str, str], Histogram] = {}
        self._whole: dict[str, Histogram] = {}
        self._ratios: dict[str, Histogram] = {}
        self._restarts: dict[tuple[str, str], int] = {}
        self._stories: OrderedDict[TaskId, _Story] = OrderedDict()
        self._steps, self._steps_s = 0, 0.0

    def step_totals(self) -> tuple[int, float]:
        """How many steps were seen ever, and how long they took together."""
        return self._steps, self._steps_s

    def know(self, models: Iterable[str]) -> None:
        """All that there are, so that a model's first restart is an increase and not the beginning of a counter; restarts of
        those that were removed are forgotten."""
        known = set(models)
        self._restarts = {who: count for who, count in self._restarts.items() if who[0] in known}
        for model in known:
            self._restarts.setdefault((model, "true"), 0)

    def observe(self, recorded: Recorded, task: Task | None) -> None:
        """`task` is as it is now; it is given with events that end an attempt."""
        event = recorded.event
        if isinstance(event, Failed | Cancelled | Expired):
            self._stories.pop(recorded.task, None)
            return
        story = self._stories.get(recorded.task) or self._begin(recorded.task, event)
        if story is not None:
            self._go_on(story, event)
        if story is not None and task is not None:
            self._tell(story, task, event)
        if isinstance(event, Finished):
            self._stories.pop(recorded.task, None)

    def _begin(self, task: TaskId, event: Event) -> _Story | None:
        """A gateway may have started in the middle of it."""
        if not isinstance(event, Submitted | Claimed | Progressed | Interrupted):
            return None
        story = self._stories[task] = _Story()
        if len(self._stories) > _MAX_FOLLOWED:
            self._stories.popitem(last=False)
        return story

    def _go_on(self, story: _Story, event: Event) -> None:
        time = story.clock.see(event)
        if time is not None and time.whole:  # what was cut is no stage's time
            if len(story.times) < _MAX_TIMES:
                story.times.append((time.stage, time.seconds))
            if time.stage == STEP:
                self._steps += 1
                self._steps_s += time.seconds
        if isinstance(event, Progressed) and event.eta_s and story.promised is None:
            story.began, story.promised = event.at, event.at + event.eta_s

    def _tell(self, story: _Story, task: Task, event: Event) -> None:
        for stage, seconds in story.times:
            _of(self._stages, (task.model, stage), table.VIDEO_STAGE_SECONDS).add(seconds)
        story.times.clear()
        if isinstance(event, Interrupted):
            who = (task.model, str(event.counts).lower())
            self._restarts[who] = self._restarts.get(who, 0) + 1
        elif task.finished_at is not None:
            _of(self._whole, task.model, table.VIDEO_SECONDS).add(
                max(0.0, task.finished_at - task.created_at)
            )
            if story.promised is not None and story.began is not None:
                ratio = (task.finished_at - story.began) / max(1e-3, story.promised - story.began)
                _of(self._ratios, task.model, table.VIDEO_ESTIMATE_RATIO).add(ratio)

    def text(self) -> str:
        return "".join(
            (
                table.VIDEO_STAGE_SECONDS.text(sorted(self._stages.items())),
                table.VIDEO_SECONDS.by_label(sorted(self._whole.items())),
                table.VIDEO_ESTIMATE_RATIO.by_label(sorted(self._ratios.items())),
                table.GANG_RESTARTS.text(sorted(self._restarts.items())),
            )
        )


def _of(kept: dict[_Name, Histogram], name: _Name, metric: HistogramMetric) -> Histogram:
    found = kept.get(name)
    if found is None:
        found = kept[name] = metric.new()
    return found
