"""Counts the manager's decisions and its replicas for the metrics. Pure."""

from collections import Counter
from collections.abc import Iterable

from turnout.domain.fleet import Fleet
from turnout.domain.serving import Phase, Want
from turnout.manager.events_and_commands import Close, Command, SetWant, StartReplica


def count_decisions(before: Fleet, commands: Iterable[Command]) -> Counter[str]:
    """How many replicas were started, woken and evicted for another model, by `decision:model`."""
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


def count_replicas(fleet: Fleet) -> Counter[str]:
    """How many replicas are in each state, by `state:model`; one that takes no new requests is closing."""
    return Counter(
        f"{'closing' if r.closing is not None else r.phase.value}:{r.model}" for r in fleet.replicas.values()
    )
