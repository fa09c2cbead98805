"""Counts what the manager decided, and how its replicas stand, for whoever watches. Pure."""

from collections import Counter
from collections.abc import Iterable

from turnout.domain.fleet import Fleet
from turnout.domain.serving import Phase, Want
from turnout.manager.events_and_commands import Close, Command, SetWant, StartReplica


def deeds(before: Fleet, commands: Iterable[Command]) -> Counter[str]:
    """How often each was done, by `deed:model`: a replica started, one that slept woken, one evicted for another's
    sake."""
    counted: Counter[str] = Counter()
    for command in commands:
        match command:
            case StartReplica(model=model):
                counted[f"started:{model}"] += 1
            case SetWant(replica, Want.READY, _) if replica in before.replicas:
                if before.replicas[replica].phase is Phase.SLEEPING:
                    counted[f"woken:{before.replicas[replica].model}"] += 1
            case Close(replica=replica, room_for=str()) if replica in before.replicas:
                counted[f"evicted:{before.replicas[replica].model}"] += 1
            case _:
                pass
    return counted


def census(fleet: Fleet) -> Counter[str]:
    """How many replicas there are, by `state:model`; one that takes no new requests is closing."""
    return Counter(
        f"{'closing' if r.closing is not None else r.phase.value}:{r.model}" for r in fleet.replicas.values()
    )
