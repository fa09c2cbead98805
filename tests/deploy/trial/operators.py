"""The part of operators, played where they are not installed: the variables that LeaderWorkerSet and Kubeflow give to the pods of a
group, and the pods of a RayService as KubeRay makes them. The templates, probes and configuration are the chart's own."""

import json
from collections.abc import Callable
from typing import Any

HEAD, RANKS = "ray-head", "ray-ranks"
_PORTS = (
    "--dashboard-agent-listen-port=52365 --metrics-export-port=8080 --object-store-memory=100000000 --block"
)
Apply = Callable[[dict[str, Any]], None]

GROUP, GROUPS = "group", ("LeaderWorkerSet", "PyTorchJob")


def group_service() -> dict[str, Any]:
    """Ranks find their leader before it is ready: it is ready when they have met. LeaderWorkerSet makes such a Service."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"played": GROUP}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": GROUP}, "spec": spec}


def group_variables(operator: str, first: str, index: int) -> dict[str, str]:
    """What a pod of a group of two is told of its place."""
    number = str(index)
    if operator == "LeaderWorkerSet":
        return {"LWS_LEADER_ADDRESS": first, "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": number}
    port = "23456"
    own = {"MASTER_ADDR": first, "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": number}
    torchrun = {"PET_NNODES": "2", "PET_NODE_RANK": number, "PET_MASTER_ADDR": first, "PET_MASTER_PORT": port}
    return own | torchrun


def start_pods(service: dict[str, Any], namespace: str, secret: str, cpus: int, apply: Apply) -> None:
    cluster = service["spec"]["rayClusterConfig"]
    fault_tolerance = cluster["gcsFaultToleranceOptions"]
    token = [
        {"name": "RAY_AUTH_MODE", "value": cluster["authOptions"]["mode"]},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "ray-token"}}},
    ]
    state = [
        {"name": "RAY_REDIS_ADDRESS", "value": fault_tolerance["redisAddress"]},
        {"name": "REDIS_PASSWORD", **fault_tolerance["redisPassword"]},
        {"name": "RAY_external_storage_namespace", "value": namespace},
    ]
    labels = ",".join(f"{key}={value}" for key, value in cluster["headGroupSpec"]["labels"].items())
    head = f"ray start --head --dashboard-host=0.0.0.0 --num-cpus=0 --labels={labels} --redis-password=$REDIS_PASSWORD {_PORTS}"
    ranks = f"ray start --address={HEAD}.{namespace}.svc.cluster.local:6379 --num-cpus={cpus} {_PORTS}"
    port = {"name": "gcs", "port": 6379}
    named = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"played": HEAD},
        "ports": [port],
    }
    apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": HEAD}, "spec": named})
    apply(_pod(HEAD, cluster["headGroupSpec"]["template"], head, token + state))
    apply(_pod(RANKS, cluster["workerGroupSpecs"][0]["template"], ranks, token))


def _pod(name: str, template: dict[str, Any], command: str, env: list[dict[str, Any]]) -> dict[str, Any]:
    spec = json.loads(json.dumps(template["spec"]))
    container = spec["containers"][0]
    container |= {
        "command": ["/bin/bash", "-lc", "--"],
        "args": [f"ulimit -n 65536; {command}"],
        "env": container["env"] + env,
        "resources": {"requests": {"cpu": "50m"}},
    }
    metadata = template["metadata"] | {
        "name": name,
        "labels": template["metadata"]["labels"] | {"played": name},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
