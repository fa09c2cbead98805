"""Tells the trace of a task when an attempt at it ends: whoever writes that event tells all of the attempt."""

import asyncio

from turnout.errors import Unavailable
from turnout.tasks.span_rules import attempt_spans, video_context
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_rules import Cancelled, Event, Expired, Failed, Finished, Interrupted, Task
from turnout.telemetry.log import get_log
from turnout.telemetry.otlp import OtlpSpans

_READ_S = 2.0


class TaskTraces:
    def __init__(self, events: TaskEvents, sink: OtlpSpans) -> None:
        self._events = events
        self._sink = sink

    async def written(self, task: Task, event: Event) -> None:
        """`event` was written, and `task` is what it made."""
        if not isinstance(event, Interrupted | Finished | Failed | Cancelled | Expired):
            return
        if video_context(task) is None:
            return
        try:
            async with asyncio.timeout(_READ_S):
                history = await self._events.history(task.id)
        except (Unavailable, TimeoutError) as err:
            get_log().warning("spans of the attempt not sent", **task.log_ids, error=str(err))
            return
        for span in attempt_spans(task, [recorded.event for recorded in history]):
            self._sink.record(span)
