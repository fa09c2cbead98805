"""The trace of a video, from the task's events. Pure.

Everything is in the events, so whoever writes the end of an attempt can tell all of it, also when the ranks were killed.
Ids of spans follow from the task, so that processes which never meet agree on them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnout.tasks.stage_rules import QUEUED, STEP, StageClock
from turnout.tasks.task_rules import Claimed, Event, Failed, Interrupted, Progressed, State, Task
from turnout.telemetry.trace_rules import AttributeValue, SpanKind, TraceContext, TraceSpan, read_traceparent

_MAX_SPANS = 500  # of one attempt
_MAX_ERROR_CHARS = 200


def attempt_spans(task: Task, events: Sequence[Event]) -> list[TraceSpan]:
    """The attempt that the last of `events` ended, with the wait before it; and the whole video, if it has ended.
    `task` is as that event left it. Nothing for a task that is not traced."""
    video = video_context(task)
    if video is None or not events:
        return []
    *before, last = events
    put_back = max((n for n, event in enumerate(before) if isinstance(event, Interrupted)), default=0)
    spans = _Attempt(task, video, events[put_back:]).spans()
    if task.ended:
        spans.append(_video_span(task, video, last.at))
    return spans


def video_context(task: Task) -> TraceContext | None:
    """The span of the whole video; None for one that is not traced."""
    submitted = read_traceparent(task.traceparent)
    return _child(task, submitted, "video") if submitted is not None and submitted.sampled else None


def delivery_span(
    task: Task, tries: int, host: str, began: float, ended: float, status: int | None, error: str | None
) -> TraceSpan | None:
    """One try to deliver its webhook; `tries` failed before. The URL may have secrets in it, its host has none."""
    video = video_context(task)
    if video is None:
        return None
    attributes: dict[str, AttributeValue] = {
        "http.request.method": "POST",
        "server.address": host,
        "turnout.task": task.id,
        "turnout.try": tries + 1,
    }
    if status is not None:
        attributes["http.response.status_code"] = status
    return TraceSpan(
        "webhook",
        "manager",
        _child(task, video, f"webhook {tries}"),
        video.span,
        began,
        ended,
        attributes,
        SpanKind.CLIENT,
        error=error,
    )


def _video_span(task: Task, video: TraceContext, ended: float) -> TraceSpan:
    submitted = read_traceparent(task.traceparent)
    return TraceSpan(
        "video",
        "gateway",
        video,
        submitted.span if submitted else None,
        task.created_at,
        ended,
        {
            "turnout.task": task.id,
            "turnout.model": task.model,
            "turnout.tenant": task.tenant,
            "turnout.state": task.state,
            "turnout.attempts": task.attempt,
        },
        error=task.failure.code if task.state is State.FAILED and task.failure else None,
    )


@dataclass(frozen=True, slots=True)
class _Attempt:
    """`events` begin when the task began to wait for it."""

    task: Task
    video: TraceContext
    events: Sequence[Event]

    @property
    def _claimed(self) -> Claimed | None:
        return next((event for event in self.events if isinstance(event, Claimed)), None)

    @property
    def _number(self) -> int:
        return self._claimed.attempt if self._claimed else self.task.attempt + 1

    def _context(self, number: int) -> TraceContext:
        return _child(self.task, self.video, f"attempt {number}")

    def spans(self) -> list[TraceSpan]:
        clock, claimed, last = StageClock(), self._claimed, self.events[-1]
        times = [time for event in self.events if (time := clock.see(event)) is not None]
        stages = [
            self._stage(time.stage, time.began, time.ended, time.step, time.steps, time.whole)
            for time in times[:_MAX_SPANS]
        ]
        if claimed is None:
            return stages
        number = claimed.attempt
        told = next((e.at for e in self.events if isinstance(e, Progressed) and e.at >= claimed.at), None)
        claim = [self._stage("claim", claimed.at, told)] if told is not None else []
        attempt = TraceSpan(
            "attempt",
            "gang",
            self._context(number),
            self.video.span,
            claimed.at,
            last.at,
            {**self._ids(), "turnout.gang": claimed.gang},
            links=(self._context(number - 1),) if number > 1 else (),
            error=_error(last),
        )
        return [*stages, *claim, attempt]

    def _ids(self) -> dict[str, AttributeValue]:
        return {
            "turnout.task": self.task.id,
            "turnout.model": self.task.model,
            "turnout.attempt": self._number,
        }

    def _stage(
        self, stage: str, began: float, ended: float, step: int = 0, steps: int = 1, whole: bool = True
    ) -> TraceSpan:
        waits = stage == QUEUED
        steps_of: dict[str, AttributeValue] = {"turnout.step": step, "turnout.steps": steps}
        return TraceSpan(
            str(stage),
            "gateway" if waits else "gang",
            _child(self.task, self.video, f"{stage} {self._number} {step}"),
            self.video.span if waits else self._context(self._number).span,
            began,
            ended,
            {**self._ids(), **(steps_of if stage == STEP else {})},
            error=None if whole else "cut",
        )


def _error(last: Event) -> str | None:
    match last:
        case Interrupted(reason=reason):
            # What follows the colon was said by a rank or an engine, and may have anything in it.
            return reason.partition(":")[0][:_MAX_ERROR_CHARS]
        case Failed(failure=failure):
            return failure.code
        case _:
            return None


def _child(task: Task, of: TraceContext, what: str) -> TraceContext:
    return replace(of, span=hashlib.sha256(f"{task.id} {what}".encode()).hexdigest()[:16])
