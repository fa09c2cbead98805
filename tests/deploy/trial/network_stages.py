"""Stages of networks and nodes: who reaches whom where NetworkPolicies are enforced, and a node that is drained."""

import time

from tests.deploy.trial.cluster import Cluster, Skipped, plain_pod, told, wait
from tests.deploy.trial.credential_stages import found_in, secrets_of_the_service
from tests.pace import Patience, patient

STRANGER = "stranger"
# Who calls whom, by component. A stranger is a pod of nobody in the same namespace.
ALLOWED = {
    STRANGER: {"gateway"},
    "gateway": {"gateway", "redis", "worker-cpu"},
    "manager": {"gateway", "redis"},
    "worker-cpu": {"gateway"},
    "gang": {"gateway"},
    "redis": {"gateway"},
}
PORTS = {"gateway": 8000, "redis": 6379, "worker-cpu": 8100}
_CALL = """
import socket, sys
for address in sys.argv[1:]:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        print(address, "yes")
    except OSError:
        print(address, "no")
"""


def policies(cluster: Cluster) -> str:
    """Every kind of pod calls every other."""
    cluster.install("gangs.mode=pool", "gangs.pool.scaler=none", "networkPolicy.enabled=false")
    _start_stranger(cluster)
    try:
        open_to = reached(cluster, STRANGER)
        assert open_to == PORTS.keys(), (
            f"without policies everything is reached, but a stranger reached {open_to}"
        )
        cluster.install("gangs.mode=pool", "gangs.pool.scaler=none")
        patience = Patience(15)  # whoever enforces them has to notice them first
        while reached(cluster, STRANGER) == PORTS.keys():
            if patience.lost:
                raise Skipped("nobody enforces NetworkPolicies here: a stranger reaches Redis")
            time.sleep(1)
        for caller, allowed in ALLOWED.items():
            found = reached(cluster, caller)
            assert found == allowed, f"{caller} reached {sorted(found)}, and should reach {sorted(allowed)}"
        cluster.try_out()
        gang = cluster.pods("gang")[0]["metadata"]["name"]
        assert not found_in(cluster, gang, secrets_of_the_service(cluster)), "ranks hold their gang's token"
    finally:
        cluster.kubectl("delete", "pod", STRANGER, "--ignore-not-found", "--wait=false")
    pairs = len(ALLOWED) * len(PORTS)
    return f"enforced: {pairs} pairs of pods reached each other as they should and not otherwise; a pool's ranks hold no key but their gang's token"


def _start_stranger(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", STRANGER, "--ignore-not-found", "--wait")
    cluster.apply(plain_pod(cluster, STRANGER, command=["sleep", "3600"]))
    wait(lambda: cluster.phase(STRANGER) == "Running", "the stranger", 60)


def reached(cluster: Cluster, caller: str) -> set[str]:
    """The components of which a pod of this kind reaches another pod."""
    pod = caller if caller == STRANGER else cluster.pods(caller)[-1]["metadata"]["name"]
    addresses = {
        f"{other['status']['podIP']}:{port}": name
        for name, port in PORTS.items()
        for other in cluster.pods(name)
        if other["metadata"]["name"] != pod
    }
    said = cluster.kubectl("exec", pod, "--", "/opt/turnout/bin/python", "-c", _CALL, *addresses)
    answers = (line.split() for line in said.splitlines())
    return {addresses[address] for address, answer in answers if answer == "yes"}


def drained(cluster: Cluster) -> str:
    """One of two nodes is drained under load."""
    nodes = [one["metadata"]["name"] for one in cluster.items("nodes")]
    if len(nodes) < 2:
        raise Skipped("there is one node alone")
    cluster.remove()  # the claim of another stage is for one node
    cluster.install("workers.cpu.replicas=2", "blobs.claim.accessModes={ReadWriteMany}")
    wait(cluster.settled, "all pods to be ready", 180)
    cluster.try_out()
    placed = {node: sum(pod["spec"]["nodeName"] == node for pod in cluster.pods()) for node in nodes}
    assert all(placed.values()), f"pods are spread over the nodes: {placed}"
    staying = cluster.pods("redis")[0]["spec"]["nodeName"]
    other = next(node for node in nodes if node != staying)
    result = cluster.start_load(150, node=staying)
    time.sleep(15)
    try:
        # The node without Redis: its gateway, manager and worker move while requests and a video are under way.
        limit_s = patient(240)
        how = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={limit_s:.0f}s")
        cluster.kubectl("drain", other, *how, timeout_s=limit_s + 60)
        assert not [pod for pod in cluster.pods() if pod["spec"].get("nodeName") == other]
        served = result()
    finally:
        cluster.kubectl("uncordon", other)
    wait(cluster.settled, "all pods to be ready", 240)
    cluster.try_out()
    return f"{placed[other]} pods of one of {len(nodes)} nodes drained under load: {told(served)}"
