"""Who may call whom, by the chart's NetworkPolicies as a CNI reads them. The trial on a cluster calls for real."""

from copy import deepcopy
from typing import Any

import pytest
from tests.deploy.manifests import objects
from tests.deploy.test_chart import MODES, templates_of
from tests.deploy.trial.network_stages import ALLOWED, PORTS, STRANGER
from tests.deploy.trial.policy_agent import Picture, rules_of, selects


def picture(*values: str) -> tuple[Picture, dict[str, str]]:
    """A pod of each kind and a stranger, with the policies; and the address of each."""
    found = deepcopy(objects(*values))
    pods: list[dict[str, Any]] = [{"metadata": {"labels": {}}, "spec": {"containers": []}}]
    pods += templates_of(found)
    items: list[dict[str, Any]] = [one for one in found if one["kind"] == "NetworkPolicy"]
    for policy in items:
        policy["metadata"]["namespace"] = "here"
    addresses: dict[str, str] = {}
    for number, pod in enumerate(pods):
        labels = pod["metadata"]["labels"]
        part = labels.get("app.kubernetes.io/component", STRANGER)
        name = labels.get("turnout/part", part)
        addresses[name] = f"10.0.0.{number}"
        metadata = {"namespace": "here", "labels": labels}
        items.append(
            {"kind": "Pod", "metadata": metadata, "spec": pod["spec"], "status": {"podIP": addresses[name]}}
        )
    namespace = {"kubernetes.io/metadata.name": "keda"}
    items.append({"kind": "Namespace", "metadata": {"name": "keda", "labels": namespace}})
    keda = {"namespace": "keda", "labels": {}}
    items.append(
        {"kind": "Pod", "metadata": keda, "spec": {"containers": []}, "status": {"podIP": "10.0.1.1"}}
    )
    addresses["keda"] = "10.0.1.1"
    return Picture(items), addresses


def reached(seen: Picture, addresses: dict[str, str], caller: str) -> set[str]:
    closed = {pod["status"]["podIP"]: admitted for pod, admitted in seen.isolated()}
    return {
        name
        for name, port in PORTS.items()
        if addresses[name] not in closed
        or any(
            (one.sources is None or addresses[caller] in one.sources)
            and (one.ports is None or port in one.ports)
            for one in closed[addresses[name]]
        )
    }


@pytest.mark.parametrize(
    "mode", [MODES["worker"], MODES["pool"], MODES["pool of groups"], MODES["jobs by KEDA"]]
)
def test_every_kind_of_pod_reaches_whom_it_must_and_nobody_else(mode: str) -> None:
    seen, addresses = picture(mode)
    expected = {
        **ALLOWED,
        "bootstrap": {"gateway", "redis"},
        "test": {"gateway"},
        "keda": {"gateway", "redis"},
    }
    for caller, allowed in expected.items():
        if caller in addresses:
            assert reached(seen, addresses, caller) == allowed, caller


def test_on_ray_the_head_is_a_manager_and_its_other_pods_are_not() -> None:
    seen, addresses = picture(MODES["ray"])
    assert reached(seen, addresses, "head") == {"gateway", "redis"}
    assert reached(seen, addresses, "worker") == {"gateway"}


def test_who_may_call_gateways_can_be_said() -> None:
    only = "networkPolicy.gatewayFrom[0].podSelector.matchLabels.a=b"
    seen, addresses = picture(MODES["pool"], only)
    assert reached(seen, addresses, STRANGER) == set()
    assert reached(seen, addresses, "gang") == {"gateway"}, "the release's own pods always"


def test_rules_let_in_what_is_admitted_and_drop_the_rest() -> None:
    seen, addresses = picture(MODES["worker"])
    written = [line for line in rules_of(seen) if addresses["redis"] in line.split(" accept")[0][:25]]
    assert written[-1] == f"ip daddr {addresses['redis']} drop"
    assert all("tcp dport { 6379 } accept" in line for line in written[:-1]) and len(written) == 2


@pytest.mark.parametrize(
    ("expression", "taken"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "DoesNotExist"}, True),
    ],
)
def test_selectors_are_read_as_kubernetes_reads_them(expression: dict[str, Any], taken: bool) -> None:
    assert selects({"matchExpressions": [expression]}, {"a": "1"}) is taken
