"""Who holds what on Kubernetes: only gateways and managers have the credentials of Redis and of the object store. Every pod template
of the chart's modes, of the examples and of the launcher's jobs is walked."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import yaml
from deploy.render import ROOT
from tests.deploy.manifests import TRIAL, Objects, objects, read, rendered
from tests.deploy.test_chart import MATRIX, MODES, configuration, containers

from turnout.fleet.hosts.kubernetes.manifest_rules import GangTemplate, JobSpec, JobTerms, manifest
from turnout.gang.gang_settings import GangSettings
from turnout.run.config import SECTIONS
from turnout.telemetry.telemetry_settings import TelemetrySettings
from turnout.worker.worker_settings import WorkerSettings

SERVICE = {"gateway", "manager", "bootstrap", "redis"}


def templates(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod with its labels: the part that it plays, and its spec."""
    if isinstance(value, list):
        for one in value:
            yield from templates(one)
    elif isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            labels = value["metadata"]["labels"]
            part = labels["app.kubernetes.io/component"]
            yield "manager" if labels.get("turnout/part") == "head" else part, spec
        for one in value.values():
            yield from templates(one)


def launched(found: Objects) -> list[dict[str, Any]]:
    """What the launcher makes of the configuration's templates, if it is to make any."""
    jobs = yaml.safe_load(configuration(found)).get("kubernetes_jobs")
    if jobs is None:
        return []
    terms = JobTerms(jobs["launcher"], jobs["kind"], jobs["gateway_url"], 60, 60, 60, 35)
    return [
        manifest(terms, GangTemplate(**gang), JobSpec(name, 1, "{}")) for name, gang in jobs["gangs"].items()
    ]


def secrets_of(spec: dict[str, Any], container: dict[str, Any]) -> set[tuple[str, str]]:
    """The Secrets that a container sees, with their keys; * stands for all keys."""
    found = {(one["secretRef"]["name"], "*") for one in container.get("envFrom", []) if "secretRef" in one}
    for variable in container.get("env", []):
        if key := variable.get("valueFrom", {}).get("secretKeyRef"):
            found.add((key["name"], key["key"]))
    mounted = {one["name"] for one in container.get("volumeMounts", [])}
    for volume in spec.get("volumes", []):
        if "secret" in volume and volume["name"] in mounted:
            keys = [item["key"] for item in volume["secret"].get("items", [])] or ["*"]
            found |= {(volume["secret"]["secretName"], key) for key in keys}
        assert "projected" not in volume and "csi" not in volume, "read by nobody here"
    return found


def check(found: Objects) -> int:
    """How many computing containers were looked at."""
    count = 0
    for part, spec in templates([*found, *launched(found)]):
        if part in SERVICE:
            continue
        volumes = {one["name"]: one for one in spec["volumes"]}
        assert "blobs" not in volumes, part
        for container in containers(spec):
            seen, name = secrets_of(spec, container), container["name"]
            if part == "gang" or part.startswith("worker-"):
                count += 1
                keys = {key for _, key in seen}
                if name in ("worker", "open-gang"):
                    assert keys == {"worker-key"}, (part, name)
                elif name == "pytorch":  # a job's
                    assert seen <= {(JobSpec(m, 1, "").name, "*") for m in MODELS}, (part, seen)
                else:
                    assert not seen, (part, name, seen)
            elif part == "test":
                assert {key for _, key in seen} == {"admin-key"}
            else:
                assert part == "pull" and not seen, part
            names = {one["name"] for one in container.get("env", [])}
            assert not [
                n for n in names if n.startswith(("AWS_", "TURNOUT_REDIS", "REDIS", "TURNOUT_WEBHOOK"))
            ]
            account = spec["serviceAccountName"], spec["automountServiceAccountToken"]
            assert account == ("turnout-computing", False), part
    return count


MODELS = ("wan-tiny-t2v", "wan2.2")


@pytest.mark.parametrize("mode", MODES.values())
@pytest.mark.parametrize("more", ["", MATRIX["own Redis"], MATRIX["S3 and own Secrets"]])
def test_no_computing_pod_has_a_credential_of_redis_or_of_the_object_store(mode: str, more: str) -> None:
    assert check(objects(mode, more)) >= 1


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_computing_pod_of_an_example_has_one(example: Any) -> None:
    found = read(example.read_text())
    assert check(found) >= (0 if example.stem == "kserve" else 1)


def test_gateways_and_managers_do_have_them() -> None:
    """Else the tests above would hold for a walk that finds nothing."""
    found = objects(MODES["pool"], MATRIX["S3 and own Secrets"])
    for wanted in ("gateway", "manager"):
        ((_, spec),) = [one for one in templates([*found]) if one[0] == wanted]
        (container,) = spec["containers"]
        assert secrets_of(spec, container) == {
            ("mine", "redis-password"),
            ("mine", "webhook-secret"),
            ("aws", "*"),
        }


@pytest.mark.parametrize("mode", [MODES["pool"], MODES["pool of groups"], MODES["jobs by KEDA"]])
def test_the_key_is_in_the_init_container_alone_and_only_the_leader_has_one(mode: str) -> None:
    led = [spec for part, spec in templates([*objects(mode)]) if part == "gang" and "initContainers" in spec]
    (spec,) = led
    (opens,), (ranks,) = spec["initContainers"], spec["containers"]
    mounts = {one["name"]: one for one in ranks["volumeMounts"]}
    assert "key" not in mounts and mounts["gang"]["readOnly"] is True
    written = opens["args"][opens["args"].index("--write-to") + 1]
    assert written == ranks["args"][ranks["args"].index("--token-file") + 1]
    assert written.startswith(f"{mounts['gang']['mountPath']}/")


@pytest.mark.parametrize("mode", MODES.values())
def test_only_gateways_managers_and_the_bootstrap_reach_redis(mode: str) -> None:
    (policy,) = [
        one
        for one in objects(mode)
        if (one["kind"], one["metadata"]["name"]) == ("NetworkPolicy", "turnout-redis")
    ]
    (rule,) = policy["spec"]["ingress"]
    own = [one["podSelector"] for one in rule["from"] if "namespaceSelector" not in one]
    (expression,) = own[0]["matchExpressions"]
    assert expression == {
        "key": "app.kubernetes.io/component",
        "operator": "In",
        "values": ["gateway", "manager", "bootstrap"],
    }
    heads = [one["matchLabels"] for one in own[1:]]
    head = {"turnout/gang-of": "turnout", "turnout/part": "head"}
    assert heads == ([head] if mode == MODES["ray"] else [])


def test_of_the_services_settings_computing_pods_see_those_that_are_theirs() -> None:
    """The list in the chart is that of `Config.of_computing`."""
    theirs = {
        "ca_file",
        *(one.name for kind in (TelemetrySettings, GangSettings, WorkerSettings) for one in fields(kind)),
    }
    words = [word for name in SECTIONS for word in ("--set-string", f"config.{name}=x")]
    found = rendered("-f", str(TRIAL), *words)
    assert yaml.safe_load(configuration(found, "turnout-computing")).keys() == theirs | {"models"}
    assert yaml.safe_load(configuration(found)).keys() >= SECTIONS.keys()
