"""Machines that come and go: which to ask for so that replicas fit.

This is the world outside of Turnout (a node autoscaler, or a person). A replica that fits on no machine that is there or on
its way gets one more, of the cheapest kind on which it fits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.placement_rules import Room, could_ever_fit, needs_on, room_now
from turnout.fleet.worker_rules import Worker
from turnout.plan.scenario import MachineKind
from turnout.plan.simulated_machine import empty_machine


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines of one kind: `on` from the beginning and always, up to `most` in all."""

    name: str
    kind: MachineKind
    on: int
    most: int


def machines_for(
    replicas: Iterable[Model],
    pools: Iterable[Pool],
    left: Mapping[str, int],
    coming: Iterable[Pool] = (),
) -> Iterator[Pool]:
    """The pools that should give one more machine each. `left` is how many more each may give; `coming` are machines on
    their way. A replica for which there is no machine is passed over."""
    rooms = [_empty_room(pool) for pool in coming]
    free = dict(left)
    by_price = sorted(pools, key=lambda pool: pool.kind.price_an_hour)
    for model in replicas:
        if any(_take(room, model) for room in rooms):
            continue
        for pool in by_price:
            if free[pool.name] > 0 and could_ever_fit(model, empty_machine(pool.kind)):
                free[pool.name] -= 1
                rooms.append(_empty_room(pool))
                _take(rooms[-1], model)
                yield pool
                break


def _take(room: Room, model: Model) -> bool:
    needs = needs_on(model, room.worker.machine)
    gpus = room.fit(needs)
    if gpus is None:
        return False
    room.take(gpus, needs.gpu_memory_bytes, needs.memory_bytes)
    room.settle()
    return True


def _empty_room(pool: Pool) -> Room:
    return room_now(Worker(WorkerId(""), empty_machine(pool.kind), "", 0.0), ())
