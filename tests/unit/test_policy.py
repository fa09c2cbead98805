"""When gangs start and stop."""

from hypothesis import given
from hypothesis import strategies as st

from turnout.domain.families import FAMILIES
from turnout.domain.models import Model
from turnout.domain.policy import GangView, StartGang, StopGang, plan_gangs
from turnout.domain.tasks import GangId

RULES = FAMILIES["wan-tiny-t2v"]
MODEL = Model("m", "w", RULES, max_replicas=2, idle_s=60)


def view(name: str, idle_since: float | None, *, stopping: bool = False) -> GangView:
    return GangView(GangId(name), idle_since, stopping)


def test_nothing_runs_when_nobody_asks() -> None:
    assert plan_gangs(MODEL, 0, [], 100) == []


def test_a_task_wakes_a_gang() -> None:
    assert plan_gangs(MODEL, 1, [], 100) == [StartGang("m")]


def test_a_backlog_wakes_as_many_as_allowed() -> None:
    assert plan_gangs(MODEL, 9, [], 100) == [StartGang("m")] * 2


def test_an_idle_gang_stays_for_a_while() -> None:
    assert plan_gangs(MODEL, 0, [view("a", 50)], 100) == []


def test_an_idle_gang_is_stopped_after_its_time() -> None:
    assert plan_gangs(MODEL, 0, [view("a", 40)], 100) == [StopGang(GangId("a"), "idle for 60 s")]


def test_of_two_gangs_the_idle_one_is_stopped() -> None:
    assert plan_gangs(MODEL, 1, [view("busy", None), view("idle", 0)], 100) == [
        StopGang(GangId("idle"), "idle for 60 s")
    ]


def test_a_minimum_is_kept_warm() -> None:
    warm = Model("m", "w", RULES, min_replicas=1, idle_s=1)
    assert plan_gangs(warm, 0, [], 100) == [StartGang("m")]
    assert plan_gangs(warm, 0, [view("a", 0)], 100) == []


def test_a_leaving_gang_keeps_its_place_until_it_is_gone() -> None:
    one = Model("m", "w", RULES, max_replicas=1)
    assert plan_gangs(one, 3, [view("a", 0, stopping=True)], 100) == []


@given(
    st.integers(0, 20),
    st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 100)), st.booleans()), max_size=4),
    st.integers(0, 2),
)
def test_never_too_many_and_never_a_busy_one(
    tasks: int, gangs: list[tuple[float | None, bool]], minimum: int
) -> None:
    model = Model("m", "w", RULES, min_replicas=minimum, max_replicas=4, idle_s=10)
    views = [view(str(n), idle, stopping=stopping) for n, (idle, stopping) in enumerate(gangs)]
    plan = plan_gangs(model, tasks, views, 100)
    starts = sum(isinstance(p, StartGang) for p in plan)
    assert starts == 0 or len(views) + starts <= model.max_replicas
    for step in plan:
        if isinstance(step, StopGang):
            stopped = next(v for v in views if v.id == step.gang)
            assert stopped.idle_since is not None
            assert not stopped.stopping
