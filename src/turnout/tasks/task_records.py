"""How tasks, their events and the pace of models are written in Redis."""

from typing import Annotated

from pydantic import Field

from turnout.store.record_kinds import RecordKind
from turnout.tasks.pace_rules import PaceBook
from turnout.tasks.task_rules import Event, Priority, Task

TASK = RecordKind[Task]("task", Task, unknown={"stage": None, "priority": Priority.NORMAL})
EVENT = RecordKind[Event]("event", Annotated[Event, Field(discriminator="kind")])
PACE_BOOK = RecordKind[PaceBook]("pace_book", PaceBook)
