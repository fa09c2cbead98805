"""The Redis adapter against a model of it in plain Python, driven by Hypothesis in any order."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.conftest import make_task

from turnout.errors import Limited, Stale
from turnout.store.connection import RedisConnection
from turnout.tasks.backlog import Backlog
from turnout.tasks.fairness_rules import class_base
from turnout.tasks.lease_rules import Overdue
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_rules import (
    Cancelled,
    Event,
    Failed,
    Finished,
    GangId,
    Interrupted,
    Limits,
    Priority,
    Progressed,
    Result,
    Stage,
    State,
    Task,
    TaskFailure,
    TaskId,
    evolve,
)

T = TypeVar("T")
MODEL = "m"
LIMITS = Limits(max_waiting=4, max_running=3, submits_per_minute=10**6)
tenants = st.sampled_from(["ann", "bob", "cyd"])
gangs = st.sampled_from([GangId("g1"), GangId("g2")])


Line = tuple[bool, str]
"""Whether it is of guests, and whose."""


def line_of(task: Task) -> Line:
    return task.priority is Priority.GUEST, task.tenant


class Twin:
    """What Redis should hold."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.places: dict[TaskId, int] = {}
        self.tags: dict[Line, float] = {}
        self.served: dict[Line, float] = {}
        self.clock = {False: 0.0, True: 0.0}
        self.passed: dict[Line, Counter[Line]] = {}
        self.events: dict[TaskId, int] = {}
        self.submitted = 0

    def line(self, line: Line) -> list[TaskId]:
        waiting = [t.id for t in self.tasks.values() if line_of(t) == line and t.state is State.QUEUED]
        return sorted(waiting, key=lambda i: self.places[i])

    def unfinished(self, tenant: str) -> int:
        return sum(t.tenant == tenant and not t.ended for t in self.tasks.values())

    def running(self, tenant: str) -> int:
        return sum(t.tenant == tenant and t.state is State.IN_PROGRESS for t in self.tasks.values())

    def join(self, task: Task) -> None:
        line = line_of(task)
        self.tags.setdefault(line, max(self.clock[line[0]], self.served.get(line, 0.0)))

    def settle(self) -> None:
        self.tags = {line: tag for line, tag in self.tags.items() if self.line(line)}
        self.passed = {line: self.passed.get(line, Counter()) for line in self.tags}

    def next(self) -> TaskId | None:
        for guests in (False, True):
            held_back: list[Line] = []
            in_turn = sorted(
                ((line, tag) for line, tag in self.tags.items() if line[0] is guests),
                key=lambda entry: (entry[1], entry[0]),
            )
            for line, tag in in_turn:
                if self.running(line[1]) < LIMITS.max_running:
                    self.clock[guests] = tag
                    self.tags |= {line: tag + 1} | dict.fromkeys(held_back, tag)
                    self.served[line] = tag + 1
                    self.note_passed(line, held_back)
                    return self.line(line)[0]
                held_back.append(line)
        return None

    def note_passed(self, served: Line, held_back: list[Line]) -> None:
        """How often each tenant that waits, and may run, was passed by each other. That guests are passed by others is right."""
        for line, passed_by in self.passed.items():
            if line == served or line in held_back:
                passed_by.clear()
            elif self.running(line[1]) < LIMITS.max_running and line[0] == served[0]:
                passed_by[served] += 1
            assert line[0] or not served[0] or self.running(line[1]) >= LIMITS.max_running, (
                "no guest is served while another may be"
            )

    def serving_order(self) -> list[TaskId]:
        """Who is served when, if nothing else happens and nobody is held back."""
        tags, lines = dict(self.tags), {line: self.line(line) for line in self.tags}
        order: list[TaskId] = []
        while tags:
            line = min(tags, key=lambda one: (one[0], tags[one], one[1]))
            order.append(lines[line].pop(0))
            tags[line] += 1
            if not lines[line]:
                del tags[line]
        return order


class RedisAgainstModel(RuleBasedStateMachine):
    url = ""
    link: RedisConnection
    log: TaskLog
    queue: TaskQueue
    events: TaskEvents
    backlog: Backlog

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.twin = Twin()

    @initialize()
    def connect(self) -> None:
        async def make() -> None:
            self.link = RedisConnection(self.url, f"h{secrets.token_hex(6)}")
            self.log = TaskLog(self.link, retention_s=600)
            self.queue = TaskQueue(self.link, self.log)
            self.events = TaskEvents(self.link)
            self.backlog = Backlog(self.link)

        self.run(make())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        if hasattr(self, "link"):
            self.run(self.link.close())
        self.runner.close()

    def some(self, state: State, pick: int) -> Task | None:
        found = [t for t in self.twin.tasks.values() if t.state is state]
        return found[pick % len(found)] if found else None

    def apply(self, task: Task, event: Event) -> None:
        """Both must agree on whether the event counts, and on what becomes of the task."""
        expected = evolve(task, event)
        if expected is task:
            with pytest.raises(Stale):
                self.run(self.log.apply(task.id, event))
            return
        assert self.run(self.log.apply(task.id, event)) == expected
        self.twin.events[task.id] += 1
        self.record(expected)

    def record(self, task: Task) -> None:
        self.twin.tasks[task.id] = task
        if task.state is State.QUEUED:
            self.twin.join(task)
        self.twin.settle()

    @rule(tenant=tenants, priority=st.sampled_from(Priority))
    def submit(self, tenant: str, priority: Priority) -> None:
        task = make_task(tenant, MODEL, priority=priority)
        if self.twin.unfinished(tenant) >= LIMITS.max_running + LIMITS.max_waiting:
            with pytest.raises(Limited):
                self.run(self.log.submit(task, LIMITS))
            return
        assert self.run(self.log.submit(task, LIMITS)) == task
        self.twin.submitted += 1
        self.twin.places[task.id] = class_base(priority) + self.twin.submitted
        self.twin.events[task.id] = 1
        self.record(task)

    @rule(gang=gangs)
    def claim(self, gang: GangId) -> None:
        expected = self.twin.next()
        task = self.run(self.queue.claim(MODEL, gang, LIMITS))
        assert (task.id if task else None) == expected
        if task is not None:
            assert task.attempt == self.twin.tasks[task.id].attempt + 1
            self.twin.events[task.id] += 1
            self.record(task)

    @rule(pick=st.integers(0, 99), lag=st.integers(0, 1))
    def progress(self, pick: int, lag: int) -> None:
        if task := self.some(State.IN_PROGRESS, pick):
            self.apply(task, Progressed(time.time(), task.attempt - lag, Stage.DENOISING, 1, 4))

    @rule(pick=st.integers(0, 99), state=st.sampled_from(State), lag=st.integers(0, 1))
    def finish(self, pick: int, state: State, lag: int) -> None:
        if task := self.some(state, pick):
            self.apply(task, Finished(time.time(), task.attempt - lag, Result("v", "t", "s", 1)))

    @rule(pick=st.integers(0, 99))
    def fail(self, pick: int) -> None:
        if task := self.some(State.IN_PROGRESS, pick):
            self.apply(task, Failed(time.time(), task.attempt, TaskFailure("x", "y")))

    @rule(pick=st.integers(0, 99), state=st.sampled_from(State))
    def cancel(self, pick: int, state: State) -> None:
        if task := self.some(state, pick):
            self.apply(task, Cancelled(time.time()))

    @rule(pick=st.integers(0, 99))
    def drain(self, pick: int) -> None:
        if task := self.some(State.IN_PROGRESS, pick):
            self.apply(task, Interrupted(time.time(), task.attempt, "drained", counts=False))

    @rule(gang=gangs)
    def gang_dies(self, gang: GangId) -> None:
        held = {t.id for t in self.twin.tasks.values() if t.gang == gang}
        released = self.run(self.queue.release(MODEL, gang, "died"))
        assert {t.id for t in released} == held
        self.after_death(released)

    @rule()
    def every_lease_runs_out(self) -> None:
        held = {t.id for t in self.twin.tasks.values() if t.state is State.IN_PROGRESS}
        leases = self.run(self.queue.leases(MODEL))
        taken = [self.run(self.queue.take_back(Overdue(h.turn, h.task, counts=True))) for h in leases]
        reaped = [task for task in taken if task]
        assert {t.id for t in reaped} == held
        self.after_death(reaped)

    def after_death(self, tasks: list[Task]) -> None:
        for task in tasks:
            assert task.failures == self.twin.tasks[task.id].failures + 1
            self.twin.events[task.id] += 1
            self.record(task)

    @rule(pick=st.integers(0, 99), state=st.sampled_from(State))
    def renew(self, pick: int, state: State) -> None:
        if task := self.some(state, pick):
            assert self.run(self.queue.renew(task.id, task.gang or GangId(""), task.attempt)) == (
                state is State.IN_PROGRESS
            )

    @rule(pick=st.integers(0, 99), state=st.sampled_from([State.COMPLETED, State.FAILED, State.CANCELLED]))
    def forget(self, pick: int, state: State) -> None:
        if task := self.some(state, pick):
            self.run(self.log.forget(task))
            del self.twin.tasks[task.id], self.twin.events[task.id]
            assert self.run(self.events.history(task.id)) == []

    @invariant()
    def the_queue_counts_what_is_unfinished(self) -> None:
        if not hasattr(self, "queue"):
            return
        figures = self.run(self.backlog.figures(MODEL))
        waiting = sum(t.state is State.QUEUED for t in self.twin.tasks.values())
        running = sum(t.state is State.IN_PROGRESS for t in self.twin.tasks.values())
        assert (figures.length, figures.running) == (waiting + running, running)
        assert sum(self.run(self.queue.holdings(MODEL)).values()) == running

    @invariant()
    def everyone_knows_their_place(self) -> None:
        for ahead, task_id in enumerate(self.twin.serving_order()):
            assert self.run(self.log.position(self.twin.tasks[task_id])) == ahead

    @invariant()
    def nobody_is_passed_more_than_twice_by_another(self) -> None:
        for passed_by in self.twin.passed.values():
            assert max(passed_by.values(), default=0) <= 2

    @invariant()
    def stories_are_whole_and_in_order(self) -> None:
        for task_id, count in self.twin.events.items():
            ids = [tuple(map(int, r.id.split("-"))) for r in self.run(self.events.history(task_id))]
            assert len(ids) == count
            assert ids == sorted(set(ids))


def test_redis_does_what_the_model_does(valkey: str) -> None:
    machine = type("Machine", (RedisAgainstModel,), {"url": valkey})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            derandomize=True,
            suppress_health_check=cast(Any, list(HealthCheck)),
        ),
    )
