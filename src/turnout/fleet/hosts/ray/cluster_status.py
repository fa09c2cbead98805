"""How things stand on the cluster, from those who know: Ray its nodes, Serve its deployments, the manager the gangs."""

from dataclasses import dataclass, field

from ray.exceptions import RayError

from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.manager_actor import ManagerHealth, find_manager, ray
from turnout.fleet.hosts.ray.ray_identity import namespace_of
from turnout.fleet.hosts.ray.serve_app import our_applications
from turnout.fleet.ray_rules import QueueState
from turnout.run.config import Config
from turnout.tasks.task_rules import GangId

_ANSWER_S = 20.0


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    address: str
    resources: dict[str, float]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`messages` is what Serve says of applications and deployments beside their state. `manager` None: there is none, or it
    did not answer. `lines` are the queues; `turnout ray status --json` calls them so."""

    nodes: list[Node]
    deployments: dict[str, str]
    messages: dict[str, str]
    manager: ManagerHealth | None = None
    gangs: dict[GangId, GangReport] = field(default_factory=dict[GangId, GangReport])
    lines: dict[str, QueueState] = field(default_factory=dict[str, QueueState])


def cluster_status(config: Config) -> ClusterStatus:
    nodes = [
        Node(
            n["NodeID"],
            n["NodeManagerAddress"],
            {k: v for k, v in n["Resources"].items() if k in ("CPU", "GPU")},
        )
        for n in ray.nodes()
        if n["Alive"]
    ]
    applications = our_applications(namespace_of(config))
    parts = {name: part for app in applications.values() for name, part in app["deployments"].items()}
    deployments = {name: str(part["status"].value) for name, part in parts.items()}
    said = {name: str(part["message"]) for name, part in {**applications, **parts}.items()}
    messages = {name: message for name, message in said.items() if message}
    manager = find_manager(namespace_of(config))
    if manager is None:
        return ClusterStatus(nodes, deployments, messages)
    try:
        asked = [manager.health.remote(), manager.gangs.remote(), manager.queues.remote()]
        health, gangs, queues = ray.get(asked, timeout=_ANSWER_S)
    except RayError:
        return ClusterStatus(nodes, deployments, messages)
    return ClusterStatus(nodes, deployments, messages, health, gangs, queues)
