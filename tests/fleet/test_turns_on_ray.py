"""On Ray, too, every model that fits gets its turn, though Ray places whatever fits first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.fleet.ray_rules import GangWaits, Resident, plan_waits

TURN_S = 10.0
LOOK_S = 1.0


class Cluster:
    """Machines with GPUs; a model is a gang of so many on one of them, and always has tasks. What pends is placed as soon as
    it fits, the smallest first. `foreign` GPUs of each machine are others' work."""

    def __init__(self, nodes: list[int], needs: dict[str, int], foreign: int = 0) -> None:
        self.nodes, self.needs = nodes, needs
        self.free = [max(0, gpus - foreign) for gpus in nodes]
        self.at: dict[str, int] = {}
        self.ready_at: dict[str, float] = {}
        self.waits = GangWaits()
        self.now = 0.0
        self.had: set[str] = set()

    def look(self) -> None:
        self.now += LOOK_S
        residents = {name: Resident(self.ready_at[name], used=True) for name in self.at}
        fitting = [name for name, gpus in self.needs.items() if gpus <= max(self.nodes)]
        self.waits = plan_waits(self.waits, list(self.needs), fitting, residents, TURN_S, self.now)
        for name in [name for name in self.at if self.waits.yields(name)]:
            self.free[self.at.pop(name)] += self.needs[name]
        pending = [n for n in self.needs if n not in self.at and not self.waits.yields(n)]
        for name in sorted(pending, key=lambda name: self.needs[name]):
            node = next((i for i, free in enumerate(self.free) if free >= self.needs[name]), None)
            if node is not None:
                self.free[node] -= self.needs[name]
                self.at[name], self.ready_at[name] = node, self.now
                self.had.add(name)


@settings(max_examples=300)
@given(
    nodes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    names=st.permutations("abcdef"),
)
def test_every_model_that_fits_has_a_gang_in_bounded_time(
    nodes: list[int], sizes: list[int], names: list[str]
) -> None:
    cluster = Cluster(nodes, dict(zip(names, sizes, strict=False)))
    fitting = {name for name, gpus in cluster.needs.items() if gpus <= max(nodes)}
    while not cluster.had >= fitting:
        cluster.look()
        assert cluster.now < TURN_S * (len(sizes) + 2) ** 2, (cluster.at, cluster.waits)


def test_a_large_model_gets_room_from_two_small_ones_and_a_third_does_not_take_it() -> None:
    cluster = Cluster([2], {"a": 1, "b": 1, "c": 1, "large": 2})
    while "large" not in cluster.had:
        cluster.look()
        assert cluster.now < 6 * TURN_S
    assert set(cluster.at) == {"large"}


def test_a_model_that_others_work_keeps_out_stops_the_rest_for_a_while_only() -> None:
    cluster = Cluster([2], {"a": 1, "large": 2}, foreign=1)
    served = 0
    for _ in range(200):
        cluster.look()
        served += "a" in cluster.at
    assert served > 60, "it waits in vain, and the other works meanwhile"
