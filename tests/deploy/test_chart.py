"""The chart, rendered over its modes and a matrix of values: core types against the published schemas, and what must hold for
every pod. Custom resources are checked against real CRDs by `./dev test-kubernetes --crds DIR`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy.render import CHART, HELM, helm_template, outputs

from turnout import __version__
from turnout.run import config as settings

TRIAL = CHART / "values-trial.yaml"
CORE = {
    "v1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
}
TWO_PODS = "gangs.pods.wan-tiny-t2v=2"
MODES = {
    "worker": "gangs.mode=worker",
    "pool": "gangs.mode=pool",
    "pool of groups": f"gangs.mode=pool,{TWO_PODS}",
    "pool without KEDA": "gangs.mode=pool,gangs.pool.scaler=none",
    "jobs by KEDA": "gangs.mode=job,gangs.job.by=keda",
    "jobs by the launcher": "gangs.mode=job",
    "ray": "gangs.mode=ray,gangs.ray.gpusPerWorker=2",
}
MATRIX = {
    "defaults": "",
    "own Redis": "redis.mode=external,redis.external.existingSecret=r,redis.external.address=r:6379",
    "Sentinels": "redis.mode=external,redis.external.existingSecret=r,redis.external.address=a:1\\,b:2,"
    "redis.external.sentinelService=m,redis.external.passwordKey=p,redis.external.tls=true",
    "S3 and own Secrets": "blobs.mode=s3,blobs.s3.url=s3://b/p,blobs.s3.endpoint=http://s3,blobs.s3.existingSecret=aws,"
    "secrets.existingSecret=mine,bootstrap.enabled=false,images.pullSecrets={one}",
    "all around": "ingress.enabled=true,ingress.host=h.example,ingress.tlsSecret=t,ingress.className=nginx,httpRoute.enabled=true,"
    "httpRoute.parentRefs[0].name=g,monitoring.enabled=true,gateway.autoscaling.enabled=true,weights.enabled=true,"
    "weights.pull.wan=Wan-AI/x,kserve.services.l.storageUri=pvc://a/b,networkPolicy.enabled=false,workers.cpu.gpus=2",
}


@cache
def objects(*values: str) -> tuple[dict[str, Any], ...]:
    set_values = [word for value in values if value for word in ("--set", value)]
    rendered = helm_template("-f", str(TRIAL), *set_values)
    return tuple(one for one in yaml.safe_load_all(rendered) if one)


def pods(found: tuple[dict[str, Any], ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod spec, wherever it stands, with the name of what has it."""

    def within(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            if isinstance(value.get("containers"), list):
                yield value
            for one in value.values():
                yield from within(one)
        elif isinstance(value, list):
            for one in value:
                yield from within(one)

    for one in found:
        for spec in within(one.get("spec")):
            yield f"{one['kind']} {one['metadata']['name']}", spec


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def configuration(found: tuple[dict[str, Any], ...], name: str = "turnout") -> str:
    (config,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", name)]
    return config["data"]["turnout.yaml"]


def kinds(*values: str) -> set[str]:
    return {one["kind"] for one in objects(*values)}


valid: set[str] = set()  # most objects are the same in all cases
CASES = [(mode, "") for mode in MODES.values()] + [(MODES["pool"], more) for more in MATRIX.values() if more]


@pytest.mark.parametrize(("mode", "more"), CASES)
def test_core_types_have_no_unknown_field(mode: str, more: str) -> None:
    found = objects(mode, more)
    for one in found:
        if one["apiVersion"] in CORE and json.dumps(one) not in valid:
            kubernetes_validate.validate(one, "1.36", strict=True)
            valid.add(json.dumps(one))
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("mode", "more"), CASES)
def test_every_pod_is_allowed_by_the_restricted_level(mode: str, more: str) -> None:
    found = list(pods(objects(mode, more)))
    assert len(found) >= 5
    for name, spec in found:
        if name.startswith("InferenceService"):
            continue
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["enableServiceLinks"] is False, name  # TURNOUT_PORT would be read as a setting
        assert not spec.get("hostNetwork") and all("hostPath" not in one for one in spec["volumes"]), name
        for container in containers(spec):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["readOnlyRootFilesystem"] is True and security["capabilities"] == {
                "drop": ["ALL"]
            }, name
            assert container["resources"]["requests"], name


@pytest.mark.parametrize("mode", MODES.values())
def test_the_configuration_is_one_that_turnout_reads(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text(configuration(objects(mode), "turnout-computing"))
    theirs = settings.load({}, {}, file).config
    file.write_text(configuration(objects(mode)))
    config = settings.load({}, {}, file).config
    assert theirs == replace(config.of_computing(), outbound=theirs.outbound), (
        "ranks and workers miss nothing"
    )
    assert config.gangs.drain_s == 20
    assert (config.fleet.kubernetes_jobs is not None) == (mode == MODES["jobs by the launcher"])
    graces = {
        spec["terminationGracePeriodSeconds"]
        for _, spec in pods(objects(mode))
        if "shm" in str(spec["volumes"])
    }
    assert min(graces) >= config.gangs.drain_s + 15  # what drains is not killed


def test_no_secret_is_rendered() -> None:
    assert all("data" not in one and "stringData" not in one for one in objects() if one["kind"] == "Secret")


def test_each_mode_has_its_kinds() -> None:
    assert {"StatefulSet", "ScaledObject", "TriggerAuthentication"} <= kinds(MODES["pool"])
    assert "LeaderWorkerSet" in kinds(MODES["pool of groups"])
    assert "ScaledObject" not in kinds(MODES["pool without KEDA"])
    assert "ScaledJob" in kinds(MODES["jobs by KEDA"])
    (role,) = [
        one
        for one in objects(MODES["jobs by the launcher"])
        if one["metadata"]["name"] == "turnout-manager" and one["kind"] == "Role"
    ]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "create", "delete"}
    (secrets,) = [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    assert secrets["verbs"] == ["create"], "it reads none"
    assert "RayService" in kinds(MODES["ray"])
    assert {"HTTPRoute", "Ingress", "ServiceMonitor", "InferenceService"} <= kinds(
        "gangs.mode=pool", MATRIX["all around"]
    )


def test_keda_scales_by_the_streams_length() -> None:
    (scaled,) = [one for one in objects(MODES["pool"]) if one["kind"] == "ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["stream"] == "turnout:queue:wan-tiny-t2v"
    assert {"lagCount", "pendingEntriesCount", "consumerGroup"}.isdisjoint(trigger["metadata"])
    # Replicas that a chart sets are set back by each upgrade.
    (gangs,) = [
        o for o in objects(MODES["pool"]) if o["kind"] == "StatefulSet" and "gang" in o["metadata"]["name"]
    ]
    assert "replicas" not in gangs["spec"]


def test_a_change_of_the_configuration_is_noticed_by_serve() -> None:
    first, second = (
        next(one for one in objects(MODES["ray"], more) if one["kind"] == "RayService")["spec"][
            "serveConfigV2"
        ]
        for more in ("", "config.lease_s=20")
    )
    assert first != second


def test_old_clusters_get_old_versions() -> None:
    more = ("-f", str(TRIAL), "--set", "gateway.autoscaling.enabled=true", "--kube-version")
    old, new = (
        {one["apiVersion"] for one in yaml.safe_load_all(helm_template(*more, v)) if one}
        for v in ("1.20.0", "1.36.0")
    )
    assert old - new == {"policy/v1beta1", "autoscaling/v1"} and new - old == {"policy/v1", "autoscaling/v2"}


def test_lint_finds_nothing() -> None:
    command = [str(HELM), "lint", str(CHART), "-f", str(TRIAL), "--strict"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("gangs.mode=torchserve", "gangs.mode"),
        ("gateway.replcas=3", "replcas"),
        ("workers.a.replica=3", "replica"),
        ("redis.mode=external", "redis.external.existingSecret"),
        ("gangs.mode=pool,gangs.pods.wan-tiny-t2v=3", "not spread evenly"),
        (f"gangs.mode=job,gangs.job.by=keda,{TWO_PODS}", "the launcher"),
        ("gangs.mode=ray,gangs.ray.gpusPerWorker=8,gangs.ray.cpusPerWorker=4", "cpusPerWorker"),
    ],
)
def test_values_that_make_no_sense_are_refused(wrong: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        helm_template("-f", str(TRIAL), "--set", wrong)


def test_what_is_made_from_the_chart_is_up_to_date() -> None:
    differing = [
        path.name for path, text in outputs().items() if not path.exists() or path.read_text() != text
    ]
    assert differing == [], f"run {Path(sys.executable).name} deploy/render.py"


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
