"""Who is next of those who wait, and how many are served before one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.tasks.fairness_rules import FairQueue, Waiting, class_base, position
from turnout.tasks.task_rules import Priority, TenantId


def line(*tasks: tuple[str, int], priority: Priority = Priority.NORMAL) -> FairQueue[str]:
    """Of tenant and number; a task is called by both."""
    queue = FairQueue[str]()
    for tenant, number in tasks:
        join(queue, tenant, number, priority)
    return queue


def join(queue: FairQueue[str], tenant: str, number: int, priority: Priority = Priority.NORMAL) -> None:
    queue.join(TenantId(tenant), class_base(priority) + number, f"{tenant}{number}")


def served(queue: FairQueue[str], times: int | None = None) -> str:
    return " ".join(str(queue.claim({}, 1)) for _ in range(len(queue) if times is None else times))


def test_tenants_take_turns_in_the_order_of_their_names() -> None:
    queue = line(("b", 1), ("b", 2), ("a", 3), ("a", 4), ("c", 5))
    assert len(queue) == 5
    assert served(queue) == "a3 b1 c5 a4 b2" and len(queue) == 0
    assert queue.claim({}, 1) is None


def test_of_one_tenant_s_tasks_priority_decides_and_then_age() -> None:
    queue = line(("a", 3), ("a", 2))
    join(queue, "a", 4, Priority.HIGH)
    join(queue, "a", 1, Priority.LOW)
    assert served(queue) == "a4 a2 a3 a1"


def test_guests_are_served_when_nobody_else_may_be() -> None:
    queue = line(("g", 1), ("h", 2), priority=Priority.GUEST)
    join(queue, "z", 9, Priority.LOW)
    assert len(queue) == 3
    assert queue.claim({TenantId("z"): 1}, 1) == "g1", "z may run no more"
    assert served(queue) == "z9 h2"


def test_who_may_run_no_more_is_passed_over_and_goes_on_at_the_clock() -> None:
    queue = line(*(("a", n) for n in range(4)), *(("b", n) for n in range(4)))
    assert [queue.claim({TenantId("a"): 2}, 2) for _ in range(2)] == ["b0", "b1"]
    assert served(queue) == "a0 a1 b2 a2 b3 a3", "one turn more at once, not two"
    assert line(("a", 0)).claim({TenantId("a"): 1}, 1) is None
    assert line(("a", 0)).claim({TenantId("a"): 1}, 2) == "a0"


def test_absence_earns_no_credit_and_neither_does_one_task_at_a_time() -> None:
    queue = line(*(("b", n) for n in range(6)))
    assert served(queue, 3) == "b0 b1 b2"
    join(queue, "c", 10)
    join(queue, "c", 11)
    assert served(queue, 3) == "c10 b3 c11", "c begins at the clock: b's last turn"
    join(queue, "c", 12)
    assert served(queue, 2) == "b4 c12", "c has its own tag still, though it was gone"


@given(st.lists(st.sampled_from(["a", "b", "c", "serve"]), max_size=60))
def test_nobody_is_served_more_than_twice_while_another_waits(acts: list[str]) -> None:
    queue, waiting, turns = FairQueue[str](), dict[str, int](), dict[str, dict[str, int]]()
    for number, act in enumerate(acts):
        if act != "serve":
            join(queue, act, number)
            waiting[act] = waiting.get(act, 0) + 1
            continue
        task = queue.claim({}, 1)
        assert (task is None) == (not any(waiting.values()))
        if task is not None:
            waiting[task[0]] -= 1
            turns.pop(task[0], None)
            for name in (name for name, count in waiting.items() if count and name != task[0]):
                seen = turns.setdefault(name, {})
                seen[task[0]] = seen.get(task[0], 0) + 1
                assert seen[task[0]] <= 2


@pytest.mark.parametrize(
    ("own", "place", "others", "ahead"),
    [
        (("b", 5.0), 0, [], 0),
        (("b", 5.0), 3, [], 3),
        (("b", 5.0), 0, [("a", 5.0, 9)], 1),
        (("b", 5.0), 0, [("c", 5.0, 9)], 0),
        (("b", 5.0), 2, [("a", 5.0, 9)], 5),
        (("b", 5.0), 2, [("c", 5.0, 9)], 4),
        (("b", 5.0), 2, [("a", 5.0, 2)], 4),
        (("b", 5.0), 0, [("a", 6.0, 9)], 0),
        (("b", 5.0), 1, [("a", 6.0, 9)], 2),
        (("b", 5.0), 1, [("c", 6.0, 9)], 1),
        (("b", 6.0), 0, [("c", 5.0, 9)], 1),
        (("b", 6.0), 0, [("a", 5.0, 9), ("c", 5.0, 1), ("d", 9.0, 9)], 3),
        (("b", 5.5), 0, [("a", 5.0, 9)], 1),
    ],
)
def test_a_place_counts_all_turns_before_it(
    own: tuple[str, float], place: int, others: list[tuple[str, float, int]], ahead: int
) -> None:
    assert position(Waiting(*own, 9), place, [Waiting(*other) for other in others]) == ahead


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_a_place_is_what_the_queue_then_does(counts: list[int], data: Any) -> None:
    names = "abcd"[: len(counts)]
    queue = line(*((name, n) for name, count in zip(names, counts, strict=True) for n in range(count)))
    lines = [Waiting(name, 0.0, count) for name, count in zip(names, counts, strict=True)]
    own = data.draw(st.sampled_from(lines))
    place = data.draw(st.integers(0, own.count - 1))
    order = served(queue).split()
    others = [one for one in lines if one is not own]
    assert order.index(f"{own.tenant}{place}") == position(own, place, others)
