"""Who is seated next: nobody waits beside a free seat, and nobody is passed over for ever."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.chat.routing_rules import choose
from turnout.chat.seat_rules import SeatQueue, Waiter, next_seat, refusal_of
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.tasks.task_rules import TenantId

NOBODY = frozenset[ReplicaId]()
TENANTS = [TenantId(name) for name in ("acme", "bolt", "cone")]
REPLICAS = [ReplicaId(name) for name in ("a", "b", "c")]


def routes(*names: str, concurrency: int = 1, refusal: str | None = None, **flags: bool) -> ModelRoutes:
    made = [Route(ReplicaId(name), WorkerId("w"), "http://w", None, **flags) for name in names]
    return ModelRoutes(tuple(made), concurrency, refusal)


def waiting(queue: SeatQueue, tenant: str, *tried: str) -> Waiter:
    waiter = Waiter(TenantId(tenant), None, frozenset(map(ReplicaId, tried)))
    queue.join(waiter)
    return waiter


def seat_all(queue: SeatQueue, there: ModelRoutes, loads: dict[ReplicaId, int]) -> list[Waiter]:
    seated: list[Waiter] = []
    while (found := next_seat(queue, there, loads, NOBODY)) is not None:
        waiter, route = found
        queue.serve(waiter)
        loads[route.replica] = loads.get(route.replica, 0) + 1
        seated.append(waiter)
    return seated


def test_inside_a_tenant_the_oldest_is_first() -> None:
    queue = SeatQueue()
    made = [waiting(queue, "acme") for _ in range(3)]
    assert seat_all(queue, routes("a", concurrency=3), {}) == made
    assert len(queue) == 0


def test_a_tenant_does_not_wait_for_another_ones_backlog() -> None:
    queue = SeatQueue()
    backlog = [waiting(queue, "acme") for _ in range(24)]
    late = waiting(queue, "bolt")
    assert seat_all(queue, routes("a", concurrency=2), {}) == [backlog[0], late]


def test_a_request_that_a_replica_failed_is_passed_over_and_keeps_its_position() -> None:
    queue = SeatQueue()
    failed, behind = waiting(queue, "acme", "a"), waiting(queue, "acme")
    assert seat_all(queue, routes("a"), {}) == [behind]
    later = waiting(queue, "acme")
    assert seat_all(queue, routes("a", "b"), {ReplicaId("a"): 1}) == [failed]
    assert len(queue) == 1
    queue.leave(later)
    queue.leave(later)
    assert len(queue) == 0


def test_who_comes_again_and_again_does_not_keep_another_tenant_waiting() -> None:
    queue, there = SeatQueue(), routes("a")
    patient = waiting(queue, "bolt")
    seated: list[Waiter] = []
    for _ in range(2):
        waiting(queue, "acme")
        seated += seat_all(queue, there, {})
    assert patient in seated


def test_to_have_been_passed_over_earns_no_credit() -> None:
    queue = SeatQueue()
    for _ in range(20):
        waiting(queue, "acme", "a")
        waiting(queue, "bolt")
    assert len(seat_all(queue, routes("a", concurrency=15), {})) == 15
    turns = Counter(waiter.tenant for waiter in seat_all(queue, routes("b", concurrency=8), {}))
    assert turns[TenantId("bolt")] >= 3


def test_a_full_queue_makes_room_for_a_tenant_that_has_less_there() -> None:
    queue = SeatQueue()
    made = [waiting(queue, "acme") for _ in range(3)]
    assert queue.crowded_out(TenantId("acme")) is None
    assert queue.crowded_out(TenantId("bolt")) is made[-1]
    waiting(queue, "bolt")
    queue.leave(made[-1])
    assert queue.crowded_out(TenantId("bolt")) is None, "both would have the same"


def test_the_newest_of_the_tenant_with_most_requests_leaves_a_full_queue() -> None:
    queue = SeatQueue()
    most = [waiting(queue, "acme") for _ in range(2)]
    waiting(queue, "bolt")
    assert queue.crowded_out(TenantId("cone")) is most[-1], "two are more than the newcomer's one"


def test_a_request_is_seated_by_its_prefix() -> None:
    """As `choose` would without a queue, so that the replica's prefix cache is used."""
    there = routes("a", "b", "c", concurrency=9)
    for prefix in (b"one", b"two", b"three", b"four"):
        queue = SeatQueue()
        queue.join(Waiter(TENANTS[0], prefix, NOBODY))
        found = next_seat(queue, there, {}, NOBODY)
        assert found and found[1] == choose(there.routes, {}, 9, prefix)


def test_a_model_is_refused_only_while_no_replica_takes_requests() -> None:
    assert refusal_of(routes(refusal="no worker")) == "no worker"
    assert refusal_of(routes("a", refusal="it fails")) is None
    assert refusal_of(routes("a", refusal="it fails", suspect=True)) == "it fails"
    assert refusal_of(routes("a", suspect=True)) is None


TRIED = st.frozensets(st.sampled_from(REPLICAS))
COMING = st.tuples(st.just("come"), st.sampled_from(TENANTS), TRIED)
LEAVING = st.tuples(st.just("leave"), st.integers(0, 20), st.none())
FREED = st.tuples(st.just("free"), st.sampled_from(REPLICAS), st.none())
ROUTED = st.tuples(st.just("routes"), st.frozensets(st.sampled_from(REPLICAS)), st.integers(1, 3))


@settings(max_examples=300)
@given(st.lists(COMING | COMING | FREED | LEAVING | ROUTED, max_size=60))
def test_nobody_waits_beside_a_seat_that_it_may_take_and_no_tenant_is_passed_over_for_ever(ops: list) -> None:  # type: ignore[type-arg]
    queue, there, loads = SeatQueue(), routes(*REPLICAS, concurrency=2), dict[ReplicaId, int]()
    passed: dict[Waiter, Counter[TenantId]] = {}
    for kind, what, more in ops:
        if kind == "come":
            waiter = Waiter(what, None, more)
            queue.join(waiter)
            passed[waiter] = Counter()
        elif kind == "leave" and passed:
            waiter = list(passed)[what % len(passed)]
            queue.leave(waiter)
            del passed[waiter]
        elif kind == "free" and loads.get(what):
            loads[what] -= 1
        elif kind == "routes":
            there = routes(*sorted(what), concurrency=more)
        in_flight = sum(loads.values())
        seated = seat_all(queue, there, loads)
        assert sum(loads.values()) == in_flight + len(seated)
        for waiter in seated:
            del passed[waiter]  # nobody is seated twice
            for other, turns in passed.items():
                if not other.tried and other.tenant != waiter.tenant and _first(other, passed):
                    turns[waiter.tenant] += 1
        assert len(queue) == len(passed) == len(set(queue.in_turn()))
        for waiter, turns in passed.items():
            assert choose(there.routes, loads, there.concurrency, None, NOBODY, waiter.tried) is None
            assert max(turns.values(), default=0) <= 2, "others had more than their turns"


def _first(waiter: Waiter, waiting: dict[Waiter, Counter[TenantId]]) -> bool:
    return next(w for w in waiting if w.tenant == waiter.tenant and not w.tried) is waiter


def test_guests_come_after_everybody_else() -> None:
    queue, there = SeatQueue(), routes("a", concurrency=4)
    guests = [Waiter(TenantId(f"g{n}"), None, NOBODY, True) for n in range(50)]
    for one in guests:
        queue.join(one)
    late = [waiting(queue, "acme"), waiting(queue, "bolt")]
    assert seat_all(queue, there, {}) == [*late, guests[0]], "and leave the last seat to others"
    assert queue.crowded_out(TenantId("cone")) in guests
    assert queue.crowded_out(TenantId("new"), True) is None, "each of the others has one, too"
    one_seat = routes("b")
    assert seat_all(queue, one_seat, {}) == [guests[1]], "where there is one seat, they may have it"
    for one in guests:
        queue.leave(one)
    held = [waiting(queue, "acme") for _ in range(3)]
    assert queue.crowded_out(TenantId("new"), True) is None and len(held) == 3
