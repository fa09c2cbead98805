"""What a gang asks of a Ray cluster, whether the cluster could ever give it, and who sits where. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal

from turnout.domain.video_model import Model

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Resources = Mapping[str, float]

LEADER: Resources = {"CPU": 0.1}  # the gang's supervisor; it waits and looks, the ranks work
_RANK_CPU = 0.9  # so that the leader fits beside the ranks on a machine that they fill


def rank_bundle(model: Model) -> Resources:
    """What one rank takes: a GPU, or a CPU on machines without."""
    return {"GPU": 1.0, "CPU": _RANK_CPU} if model.device == "cuda" else {"CPU": _RANK_CPU}


def gang_bundles(model: Model) -> list[Resources]:
    """Bundle 0 is the leader's, bundle 1 … N are the ranks'."""
    return [LEADER, *[rank_bundle(model)] * model.ranks]


def seating(bundles_to_node: Mapping[int, str]) -> list[int]:
    """The bundle of each rank: ranks of one node are neighbours, those on the leader's node come first."""
    home = bundles_to_node[0]
    return sorted(
        (bundle for bundle in bundles_to_node if bundle != 0),
        key=lambda bundle: (bundles_to_node[bundle] != home, bundles_to_node[bundle], bundle),
    )


def could_hold(nodes: Sequence[Resources], bundles: Sequence[Resources], strategy: Strategy) -> bool:
    """Whether empty nodes like these have room for all bundles together.

    First fit, largest bundles first; a gang's ranks are all alike, so that finds a place whenever there is one.
    """
    if strategy == "STRICT_PACK":
        together: dict[str, float] = {}
        for bundle in bundles:
            for name, amount in bundle.items():
                together[name] = together.get(name, 0.0) + amount
        return any(_fits(node, together) for node in nodes)
    free = [dict(node) for node in nodes]
    for bundle in sorted(bundles, key=lambda b: -sum(b.values())):
        place = next((node for node in free if _fits(node, bundle)), None)
        if place is None:
            return False
        for name, amount in bundle.items():
            place[name] -= amount
        if strategy == "STRICT_SPREAD":
            free.remove(place)
    return True


def _fits(node: Resources, bundle: Resources) -> bool:
    return all(node.get(name, 0.0) >= amount - 1e-9 for name, amount in bundle.items())


def misfit_reason(model: Model, nodes: Sequence[Resources], strategy: Strategy) -> str:
    """Why no gang of the model was placed, for a user."""
    kind = next(iter(rank_bundle(model)))
    have = sum(node.get(kind, 0.0) for node in nodes)
    return (
        f"{model.name} needs {model.ranks} ranks with one {kind} each ({strategy}); "
        f"the cluster has {have:g} on {len(nodes)} nodes and got no more in time"
    )
