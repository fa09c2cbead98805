"""What a gang asks of a Ray cluster, whether the cluster could ever give it, and who sits where. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal

from turnout.fleet.model_rules import Model

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Resources = Mapping[str, float]

LEADER: Resources = {"CPU": 0.1}  # the gang's supervisor; it waits and looks, the ranks work
_RANK_CPU = 0.9  # so that the leader fits beside the ranks on a machine that they fill


def rank_bundle(model: Model) -> Resources:
    """What one rank takes: a GPU, or a CPU on machines without."""
    return {"GPU": 1.0, "CPU": _RANK_CPU} if model.gang.device == "cuda" else {"CPU": _RANK_CPU}


def gang_bundles(model: Model) -> list[Resources]:
    """One for each rank. The leader shares bundle 0 with rank 0, so that a gang needs no more nodes than it has ranks."""
    rank = rank_bundle(model)
    first = {name: rank.get(name, 0.0) + LEADER.get(name, 0.0) for name in (*rank, *LEADER)}
    return [first, *[rank] * (model.gang.ranks - 1)]


def seating(bundles_to_node: Mapping[int, str]) -> list[int]:
    """The bundle of each rank: ranks of one node are neighbours, those on the leader's node come first."""
    home = bundles_to_node[0]
    return sorted(
        bundles_to_node, key=lambda bundle: (bundles_to_node[bundle] != home, bundles_to_node[bundle], bundle)
    )


def could_hold(nodes: Sequence[Resources], bundles: Sequence[Resources], strategy: Strategy) -> bool:
    """Whether empty nodes like these have room for all bundles together. All but the first are alike."""
    if strategy == "STRICT_PACK":
        return any(_room(node, _sum(bundles), 1) for node in nodes)
    first, others = bundles[0], len(bundles) - 1
    each = 1 if strategy == "STRICT_SPREAD" else others
    rooms = [_room(node, bundles[-1], each) for node in nodes]
    for node, room in zip(nodes, rooms, strict=True):
        if _room(node, first, 1):
            left = {name: node[name] - amount for name, amount in first.items()}
            beside = 0 if strategy == "STRICT_SPREAD" else _room(left, bundles[-1], each)
            if sum(rooms) - room + beside >= others:
                return True
    return False


def _room(node: Resources, bundle: Resources, most: int) -> int:
    """How many such bundles the node holds, up to `most`."""
    return min(most, *(int((node.get(name, 0.0) + 1e-9) / amount) for name, amount in bundle.items()))


def _sum(parts: Sequence[Resources]) -> Resources:
    return {
        name: sum(part.get(name, 0.0) for part in parts) for name in {n: 0 for part in parts for n in part}
    }


def misfit_reason(model: Model, nodes: Sequence[Resources], strategy: Strategy) -> str:
    """Why no gang of the model can be placed, for a user."""
    needed = _sum(gang_bundles(model))
    there = _sum([{name: node.get(name, 0.0) for name in needed} for node in nodes])
    lacking = [name for name in needed if there.get(name, 0.0) + 1e-9 < needed[name]]
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    if lacking:
        why = f"not enough {' and '.join(lacking)}"
    elif strategy == "STRICT_SPREAD" and len(nodes) < model.gang.ranks:
        why = "and each rank must be on a node of its own"
    else:
        why = (
            "but not where the ranks could be together"
            if strategy == "STRICT_PACK"
            else "but in parts too small"
        )
    return (
        f"{model.name} needs {model.gang.ranks} ranks with {_words(rank_bundle(model))} each, {_words(needed)} in all "
        f"({strategy}); the cluster has {_words(there) or 'nothing'} on {count}, {why}"
    )


def wait_reason(
    model: Model,
    nodes: Sequence[Resources],
    free: Resources,
    strategy: Strategy,
    *,
    placed: bool,
    trouble: str,
) -> str:
    """Why tasks of the model have no gang yet, for a user. `free` is what nobody holds on all nodes together; `placed`: Ray
    has found the gang a place; `trouble` is why its last one broke. The words change with the reason alone."""
    if trouble:
        return f"its last gang broke because {trouble}"
    if placed:
        return "Ray starts it"
    if not could_hold(nodes, gang_bundles(model), strategy):
        return misfit_reason(model, nodes, strategy)
    needed = _sum(gang_bundles(model))
    lacking = [name for name in needed if free.get(name, 0.0) + 1e-9 < needed[name]]
    if lacking:
        return f"other work on the cluster holds the {' and '.join(lacking)} that it needs"
    return "Ray looks for a place for it"


def _words(resources: Resources) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in resources.items())
