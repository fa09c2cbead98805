"""What a rank does when all ranks give a task up, and when it alone cannot go on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.conftest import make_task
from tests.gang.conftest import NumberEngine

from turnout.engines.base import RanksLost, Unrenderable
from turnout.gang.group import Group
from turnout.gang.heartbeat import RankHeartbeat
from turnout.gang.rank_commands import Advance, Begin, Decode, Job, KeepAlive, Leave, obey

_TASK = make_task()
JOB = Job(_TASK.spec, _TASK.id, 1)


@dataclass
class Commands:
    """Stands for the group: what rank 0 sends, in order."""

    left: list[object]
    taken: list[object] = field(default_factory=list[object])

    def receive(self) -> object:
        self.taken.append(self.left.pop(0))
        return self.taken[-1]


def follow(before_step: Callable[[int], None], *commands: object) -> tuple[NumberEngine, Commands]:
    engine, sent = NumberEngine(before_step), Commands([*commands, Leave()])
    obey(cast(Group, sent), engine, RankHeartbeat(None))
    return engine, sent


def raising(error: Exception) -> Callable[[int], None]:
    def full(step: int) -> None:
        if step == 1:
            raise error

    return full


def test_rank_gives_a_task_up_with_the_others_and_takes_the_next() -> None:
    begin = Begin(JOB)
    engine, sent = follow(
        raising(Unrenderable("too large")),
        begin,
        Advance(),
        Advance(),
        KeepAlive(),
        begin,
        Advance(),
        Decode(),
    )
    assert sent.left == []
    assert engine.steps == 2


@pytest.mark.parametrize("error", [RanksLost("alone"), RuntimeError("broken")])
def test_rank_that_alone_cannot_go_on_ends(error: Any) -> None:
    with pytest.raises(type(error)):
        follow(raising(error), Begin(JOB), Advance(), Advance())
