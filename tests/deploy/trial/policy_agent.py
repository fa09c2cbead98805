"""The part of a CNI that enforces NetworkPolicies, played where the CNI does not: what policies allow is written as nftables' rules
into the nodes' network namespaces, once a second. Ingress alone, which is all that the chart's policies say. As everywhere, what a
node sends to its own pods (probes) is allowed.

    python -m tests.deploy.trial.policy_agent 'nsenter -t PID -n' …      a command that runs another one in a node's network
"""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
TABLE = "inet played_policies"


def selects(selector: Object | None, labels: dict[str, str]) -> bool:
    """Whether a label selector of Kubernetes takes these labels."""
    said = selector or {}
    if any(labels.get(key) != value for key, value in (said.get("matchLabels") or {}).items()):
        return False
    for one in said.get("matchExpressions") or []:
        there, values = one["key"] in labels, one.get("values") or []
        holds = {
            "In": there and labels.get(one["key"]) in values,
            "NotIn": not there or labels.get(one["key"]) not in values,
            "Exists": there,
            "DoesNotExist": not there,
        }
        if not holds[one["operator"]]:
            return False
    return True


def labels_of(one: Object) -> dict[str, str]:
    return one["metadata"].get("labels") or {}


@dataclass(frozen=True, slots=True)
class Admitted:
    """None stands for all."""

    sources: frozenset[str] | None
    ports: frozenset[int] | None


class Picture:
    """The pods, namespaces and policies of one moment."""

    def __init__(self, items: list[Object]) -> None:
        of = {
            kind: [one for one in items if one["kind"] == kind]
            for kind in ("Pod", "Namespace", "NetworkPolicy")
        }
        self.pods = [
            pod for pod in of["Pod"] if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")
        ]
        self.namespaces = {one["metadata"]["name"]: labels_of(one) for one in of["Namespace"]}
        self.policies = [
            p for p in of["NetworkPolicy"] if "Ingress" in p["spec"].get("policyTypes", ["Ingress"])
        ]

    def isolated(self) -> Iterator[tuple[Object, list[Admitted]]]:
        """Each pod that a policy takes, and all that is let in there."""
        for pod in self.pods:
            where = pod["metadata"]["namespace"]
            own = [
                one["spec"].get("ingress") or []
                for one in self.policies
                if one["metadata"]["namespace"] == where
                and selects(one["spec"]["podSelector"], labels_of(pod))
            ]
            if own:
                rules = [rule for policy in own for rule in policy]
                yield pod, [Admitted(self._sources(rule, where), _ports(rule, pod)) for rule in rules]

    def _sources(self, rule: Object, where: str) -> frozenset[str] | None:
        if not rule.get("from"):
            return None
        found: set[str] = set()
        for peer in rule["from"]:
            if "ipBlock" in peer:
                found.add(peer["ipBlock"]["cidr"])
                continue
            spaces = (
                {
                    name
                    for name, labels in self.namespaces.items()
                    if selects(peer["namespaceSelector"], labels)
                }
                if "namespaceSelector" in peer
                else {where}
            )
            found |= {
                pod["status"]["podIP"]
                for pod in self.pods
                if pod["metadata"]["namespace"] in spaces and selects(peer.get("podSelector"), labels_of(pod))
            }
        return frozenset(found)


def _ports(rule: Object, pod: Object) -> frozenset[int] | None:
    if not rule.get("ports"):
        return None
    containers = pod["spec"]["containers"]
    named = {p["name"]: p["containerPort"] for c in containers for p in c.get("ports", []) if "name" in p}
    numbers = (named.get(one["port"], one["port"]) for one in rule["ports"])
    return frozenset(number for number in numbers if isinstance(number, int))


def rules_of(picture: Picture) -> Iterator[str]:
    """What is let in to each pod that is isolated, then that nothing else is. A set that is empty lets nobody in."""
    for pod, admitted in picture.isolated():
        to = f"ip daddr {pod['status']['podIP']}"
        for one in admitted:
            if (one.sources is not None and not one.sources) or (one.ports is not None and not one.ports):
                continue
            source = f" ip saddr {{ {', '.join(sorted(one.sources))} }}" if one.sources else ""
            ports = f" tcp dport {{ {', '.join(map(str, sorted(one.ports)))} }}" if one.ports else ""
            yield f"{to}{source}{ports} accept"
        yield f"{to} drop"


def enforce(nodes: list[str], picture: Picture) -> None:
    rules = "\n    ".join(rules_of(picture))
    script = f"""table {TABLE} {{}}
delete table {TABLE}
table {TABLE} {{
  chain forward {{
    type filter hook forward priority 0; policy accept;
    ct state established,related accept
    {rules}
  }}
}}
"""
    for node in nodes:
        subprocess.run(
            [*shlex.split(node), "nft", "-f", "-"], input=script, text=True, check=True, timeout=30
        )


def look() -> Picture:
    command = ["kubectl", "get", "networkpolicies,pods,namespaces", "-A", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return Picture(json.loads(done.stdout)["items"])


def main(nodes: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # a shell's background job ignores SIGINT
    try:
        while True:
            try:
                enforce(nodes, look())
            except subprocess.SubprocessError as err:
                print(err, file=sys.stderr, flush=True)  # the API or the node is away for a moment
            time.sleep(1)
    finally:
        for node in nodes:
            subprocess.run([*shlex.split(node), "nft", "delete", "table", *TABLE.split()], check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
