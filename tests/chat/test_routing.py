"""Which replica takes a request."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from turnout.chat.routing_rules import affinity_of, choose
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import Route


def route(name: str, **flags: bool) -> Route:
    return Route(ReplicaId(name), WorkerId("w"), "http://w", None, **flags)


ROUTES = [route(f"r{n}") for n in range(5)]


def test_requests_that_begin_alike_go_to_the_same_replica() -> None:
    one = affinity_of(b'{"model":"m","messages":[{"role":"system","content":"' + b"x" * 600 + b"one")
    two = affinity_of(b'{"model":"m","messages":[{"role":"system","content":"' + b"x" * 600 + b"two")
    assert choose(ROUTES, {}, 8, one) == choose(ROUTES, {}, 8, two)


def test_a_replica_that_leaves_moves_only_its_own_share() -> None:
    keys = [affinity_of(str(n).encode()) for n in range(400)]
    before = {key: choose(ROUTES, {}, 8, key) for key in keys}
    fewer = ROUTES[1:]
    moved = sum(before[key] != choose(fewer, {}, 8, key) for key in keys if before[key] != ROUTES[0])
    assert moved == 0
    shares = Counter(r.replica for r in before.values() if r)
    assert all(40 < share < 130 for share in shares.values()), shares


@given(st.lists(st.integers(0, 20), max_size=120))
def test_no_replica_is_loaded_far_above_the_mean(keys: list[int]) -> None:
    loads: dict[ReplicaId, int] = {}
    for key in keys:
        chosen = choose(ROUTES, loads, 10**6, affinity_of(bytes([key])))
        assert chosen
        loads[chosen.replica] = loads.get(chosen.replica, 0) + 1
    if loads:
        assert max(loads.values()) <= 1.25 * (len(keys) + 1) / len(ROUTES) + 1


def test_without_affinity_the_least_busy_is_taken() -> None:
    loads = {
        ReplicaId("r0"): 2,
        ReplicaId("r1"): 1,
        ReplicaId("r2"): 2,
        ReplicaId("r3"): 2,
        ReplicaId("r4"): 2,
    }
    assert choose(ROUTES, loads, 8, None) == ROUTES[1]


def test_full_closing_sleeping_and_suspect_replicas_get_nothing() -> None:
    routes = [route("a", closing=True), route("b", asleep=True), route("c", suspect=True), route("d")]
    assert choose(routes, {ReplicaId("d"): 7}, 8, None) == routes[3]
    assert choose(routes, {ReplicaId("d"): 8}, 8, None) is None


def test_a_replica_to_avoid_is_used_only_when_nothing_else_is_left() -> None:
    both, avoid = [route("a"), route("b")], frozenset({ReplicaId("a")})
    assert choose(both, {}, 8, b"k", avoid) == both[1]
    assert choose(both[:1], {}, 8, b"k", avoid) == both[0]


A, B, C = route("a"), route("b"), route("c")


def loads(**of: int) -> dict[ReplicaId, int]:
    return {ReplicaId(name): load for name, load in of.items()}


def test_a_seat_is_free_until_a_replica_has_as_many_as_it_takes() -> None:
    assert choose([A], {}, 1, None) == choose([A], {}, 1, b"k") == A
    for routes in ([A], [A, B]):
        assert choose(routes, loads(a=2, b=3), 3, None) == A
        assert choose(routes, loads(a=3, b=3), 3, None) is None
        assert choose(routes, loads(a=3, b=3), 3, b"k") is None
        assert choose(routes, {}, 3, b"k", tried=frozenset({A.replica, B.replica})) is None
    assert choose([], {}, 3, None) is None
    assert choose([A, B], {}, 1, None) == A and choose([A, B], loads(a=1), 1, None) == B


def test_of_equals_the_first_by_name_is_taken_and_one_that_is_not_known_idles() -> None:
    assert choose([C, B, A], {}, 8, None) == A
    assert choose([C, B, A], loads(a=1, c=1), 8, None) == B
    assert choose([A, B], loads(a=3, b=1), 8, None, avoid=frozenset({B.replica})) == A
    assert choose([A, B], loads(a=8, b=1), 8, None, avoid=frozenset({B.replica})) == B, "nothing else is left"


def test_a_popular_prefix_stays_where_it_is_up_to_a_quarter_above_the_mean() -> None:
    home = choose([A, B], {}, 99, b"k")
    assert home is not None
    other = B if home == A else A

    def with_load(here: int, there: int = 0) -> Route | None:
        return choose([A, B], {home.replica: here, other.replica: there}, 99, b"k")

    assert [with_load(n) for n in (0, 1)] == [home] * 2 and with_load(2) == other
    assert with_load(6, 3) == home and with_load(7, 3) == other
    assert with_load(40, 30) == home and with_load(50, 28) == other


def test_only_what_requests_begin_with_groups_them() -> None:
    assert affinity_of(b"x" * 512 + b"one") == affinity_of(b"x" * 512 + b"two")
    assert affinity_of(b"x" * 511 + b"one") != affinity_of(b"x" * 511 + b"two")
