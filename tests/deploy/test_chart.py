"""The chart, rendered over its modes and a matrix of values: core types against the published schemas, and what must hold for
every pod. Custom resources are checked against real CRDs by `./dev test-kubernetes --crds DIR`."""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.render import CHART, HELM, ROOT, helm_template, outputs
from tests.deploy.manifests import TRIAL, Objects, check_core_types, objects, rendered
from tests.deploy.trial import __main__ as trial
from tests.doc_blocks import blocks

from turnout import __version__
from turnout.run import config as settings

ACCEPTANCE = ROOT.parent / "docs" / "acceptance.md"
TWO_PODS = "gangs.models.wan-tiny-t2v.pods=2"
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
    "weights.pull.wan=Wan-AI/x,kserve.services.l.storageUri=pvc://a/b,networkPolicy.enabled=false,workers.cpu.gpus=2,"
    "monitoring.rules.enabled=true,monitoring.dashboards.enabled=true,pod.priorityClassName=high,workers.cpu.state=1Gi",
}


def test_what_the_acceptance_page_types_is_known_to_the_chart_and_to_the_trial() -> None:
    """Nothing but a cluster runs these lines: their values are rendered, and the stages that they name are there."""
    lines = [line for block in blocks(ACCEPTANCE) for line in block.text.splitlines()]
    typed = [line for line in lines if re.match("helm (install|upgrade) turnout ", line)]
    values = [re.findall(r"(-f|--set) (\S+)", line) for line in typed]
    assert len(values) == 4
    for found in values:
        assert helm_template(*(word for pair in found for word in pair))
    stages = {stage for line in lines for stage in re.findall(r"--only (\w+)", line)}
    assert len(stages) > 5 and stages <= trial.stages(argparse.Namespace()).keys()


def pods(found: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
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


def configuration(found: Objects, name: str = "turnout") -> str:
    (config,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", name)]
    return config["data"]["turnout.yaml"]


def kinds(*values: str) -> set[str]:
    return {one["kind"] for one in objects(*values)}


CASES = [(mode, "") for mode in MODES.values()] + [(MODES["pool"], more) for more in MATRIX.values() if more]


@pytest.mark.parametrize(("mode", "more"), CASES)
def test_core_types_have_no_unknown_field(mode: str, more: str) -> None:
    found = objects(mode, more)
    check_core_types(found)
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
    # Nobody asks which gang is busy when an HPA shrinks a set: it does not, and KEDA takes the last ones when no task is left.
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == {"scaleDown": {"selectPolicy": "Disabled"}}
    assert gang_set(MODES["pool"])["spec"]["replicas"] == 0, "no gang starts at install"
    assert gang_set(MODES["pool of groups"])["spec"]["replicas"] == 0
    # An upgrade by Helm keeps what is there; where nobody can look, it may not be said at all.
    assert "replicas" not in gang_set(MODES["pool"], "gangs.pool.initialReplicas=null")["spec"]
    assert gang_set(MODES["pool"], "models.wan-tiny-t2v.min_replicas=2")["spec"]["replicas"] == 2
    assert gang_set(MODES["pool without KEDA"])["spec"]["replicas"] == 1


def gang_set(*values: str) -> dict[str, Any]:
    """The object that KEDA scales."""
    (found,) = [
        one
        for one in objects(*values)
        if one["kind"] in ("StatefulSet", "LeaderWorkerSet") and "-gang-" in one["metadata"]["name"]
    ]
    return found


def test_every_pod_takes_the_one_shape(tmp_path: Path) -> None:
    """What `pod` says reaches every kind of pod, in every mode; what a kind says wins there."""
    said: dict[str, Any] = {
        "labels": {"team": "video"},
        "annotations": {"note": "x"},
        "env": {"PLAIN": 1, "FROM": {"secretKeyRef": {"name": "s", "key": "k"}}},
        "envFrom": [{"configMapRef": {"name": "more"}}],
        "resources": {"limits": {"cpu": "2"}},
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "volumes": [{"name": "mine", "emptyDir": {}}],
        "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
        "initContainers": [{"name": "before", "image": "busybox:1"}],
        "sidecars": [{"name": "beside", "image": "busybox:1"}],
        "probes": {"liveness": {"failureThreshold": 9}},
    }
    more = {"weights": {"enabled": True, "pull": {"a": "b/c"}}, "gateway": {"nodeSelector": {"pool": "b"}}}
    (tmp_path / "shape.yaml").write_text(yaml.safe_dump({"pod": said, **more}))
    for mode in MODES.values():
        found = rendered("-f", str(TRIAL), "-f", str(tmp_path / "shape.yaml"), "--set", mode)
        jobs = yaml.safe_load(configuration(found)).get("kubernetes_jobs", {"gangs": {}})
        specs = [*pods(found), *((mode, gang["template"]["spec"]) for gang in jobs["gangs"].values())]
        assert len(specs) >= 6
        for name, spec in specs:
            selected = {"pool": "b" if name == "Deployment turnout-gateway" else "a"}
            assert spec["nodeSelector"] == selected, name
            for key in ("tolerations", "priorityClassName", "runtimeClassName", "schedulerName"):
                assert spec[key] == said[key], name
            assert said["affinity"].items() <= spec["affinity"].items()
            assert spec["volumes"][-1] == said["volumes"][0]
            *own_init, before = spec["initContainers"]
            *own, beside = spec["containers"]
            for one in (before, beside):
                assert one["securityContext"]["allowPrivilegeEscalation"] is False
            for one in (*own_init, *own):
                cpus = "16" if one["name"] == "ray-worker" else "2"  # Ray counts them
                assert one["resources"]["limits"]["cpu"] == cpus, name
                assert one["volumeMounts"][-1] == said["volumeMounts"][0]
                assert one["envFrom"][-1] == said["envFrom"][0]
                assert [e for e in one["env"] if e["name"] in said["env"]] == [
                    {"name": "FROM", "valueFrom": said["env"]["FROM"]},
                    {"name": "PLAIN", "value": "1"},
                ]
                assert one.get("livenessProbe", {"failureThreshold": 9})["failureThreshold"] == 9
        for template in templates_of(found):
            assert template["metadata"]["labels"]["team"] == "video"
            assert template["metadata"]["annotations"]["note"] == "x"


def templates_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every pod template, and every pod."""
    if isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from templates_of(one)


def test_one_models_pods_have_settings_of_their_own() -> None:
    more = (
        "models.wan-tiny-t2v.device=cuda,gangs.models.wan-tiny-t2v.gpuResource=nvidia.com/mig-3g\\.40gb,"
        "gangs.models.wan-tiny-t2v.nodeSelector.gpu=h100,gangs.models.wan-tiny-t2v.shm=3Gi,"
        "gangs.models.wan-tiny-t2v.resources.requests.cpu=7"
    )
    spec = gang_set(MODES["pool"], more)["spec"]["template"]["spec"]
    (ranks,), (opens,) = spec["containers"], spec["initContainers"]
    assert spec["nodeSelector"] == {"gpu": "h100"} and "3Gi" in str(spec["volumes"])
    assert ranks["resources"] == {
        "requests": {"cpu": 7, "memory": "512Mi"},
        "limits": {"nvidia.com/mig-3g.40gb": 2},
    }
    assert opens["resources"] == {"requests": {"cpu": 7, "memory": "512Mi"}}, "without the GPUs"
    assert ranks["image"] == opens["image"] == f"localhost/turnout-gang:{__version__}", "for CUDA"


def test_a_pool_of_workers_has_as_many_as_it_says_and_keeps_its_state() -> None:
    def pool(more: str) -> dict[str, Any]:
        (found,) = [
            one
            for one in objects(more)
            if one["metadata"]["name"] == "turnout-worker-cpu" and one["kind"] == "StatefulSet"
        ]
        return found["spec"]

    assert pool("workers.cpu.replicas=0")["replicas"] == 0
    assert pool("")["replicas"] == 1 and "volumeClaimTemplates" not in pool("")
    kept = pool("workers.cpu.state=20Gi,workers.cpu.stateClass=fast")
    (claim,) = kept["volumeClaimTemplates"]
    assert (
        claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
        and claim["spec"]["storageClassName"] == "fast"
    )
    volumes = {one["name"]: one for one in kept["template"]["spec"]["volumes"]}
    assert "state" not in volumes, "the claim's"


def test_every_pod_that_lasts_proves_that_its_loop_lives() -> None:
    """A stopped process keeps its port, so no probe may ask for a port alone."""
    for mode in MODES.values():
        for name, spec in pods(objects(mode)):
            if name.startswith(("Job ", "Pod ")):
                continue
            probe = spec["containers"][0]["livenessProbe"]
            assert "httpGet" in probe or "exec" in probe, name
            assert "tcpSocket" not in json.dumps(spec), name
    leader, worker = (
        gang_set(MODES["pool of groups"])["spec"]["leaderWorkerTemplate"][k]
        for k in ("leaderTemplate", "workerTemplate")
    )
    for template in (leader, worker):
        (ranks,) = template["spec"]["containers"]
        assert ranks["readinessProbe"]["exec"]["command"] == ["test", "-e", "/tmp/ready"]


def test_pools_and_gangs_have_budgets() -> None:
    found = {
        one["metadata"]["name"] for one in objects(MODES["pool"]) if one["kind"] == "PodDisruptionBudget"
    }
    assert found == {"turnout-gateway", "turnout-manager", "turnout-worker-cpu", "turnout-gang"}
    none = objects(MODES["pool"], "pod.maxUnavailable=")
    assert not [one for one in none if one["kind"] == "PodDisruptionBudget"]


def test_without_values_the_tiny_models_are_served_on_cpus() -> None:
    found = rendered()
    assert set(yaml.safe_load(configuration(found))["models"]) == set(settings.DEFAULT_MODELS)
    (pool,) = [one for one in found if one["kind"] == "StatefulSet" and "worker" in one["metadata"]["name"]]
    (container,) = pool["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"localhost/turnout-gang-cpu:{__version__}", (
        "as deploy/build-images calls it"
    )
    (test,) = [one for one in found if one["kind"] == "Pod"]
    assert [one["name"] for one in test["spec"]["containers"]] == ["chat", "models", "video"]
    with pytest.raises(RuntimeError, match="nobody would run wan"):
        helm_template("--set", "models.wan.device=cuda")
    helm_template("--set", "models.wan.device=cuda,gangs.mode=pool")


def test_a_volume_for_one_node_keeps_its_users_together() -> None:
    def together(more: str) -> list[bool]:
        return [
            "turnout/blobs" in json.dumps(spec.get("affinity", {}))
            for name, spec in pods(objects(more))
            if name.startswith("Deployment ")
        ]

    assert together("") == [True, True]
    assert together("blobs.claim.accessModes={ReadWriteMany}") == [False, False]
    assert together("blobs.mode=s3,blobs.s3.url=s3://b") == [False, False]


def test_labels_of_queues_are_on_what_holds_gangs() -> None:
    more = "gangs.labels.kueue\\.x-k8s\\.io/queue-name=gpus,gangs.pool.exclusiveTopology=rack"
    assert gang_set(MODES["pool"], more)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    group = gang_set(MODES["pool of groups"], more)["metadata"]
    assert group["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert group["annotations"] == {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    jobs = yaml.safe_load(configuration(objects(MODES["jobs by the launcher"], more)))["kubernetes_jobs"]
    assert jobs["labels"] == {"kueue.x-k8s.io/queue-name": "gpus"}
    (scaled,) = [one for one in objects(MODES["jobs by KEDA"], more) if one["kind"] == "ScaledJob"]
    assert scaled["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_alerts_and_dashboards_are_those_of_the_project() -> None:
    found = objects(
        "monitoring.rules.enabled=true,monitoring.dashboards.enabled=true,monitoring.rules.labels.release=p"
    )
    (rules,) = [one for one in found if one["kind"] == "PrometheusRule"]
    assert rules["metadata"]["labels"]["release"] == "p"
    observability = CHART.parent.parent / "observability"
    assert rules["spec"] == yaml.safe_load((observability / "rules.yaml").read_text())
    shown = {one["metadata"]["name"]: one for one in found if "dashboard" in one["metadata"]["name"]}
    files = {f"turnout-dashboard-{path.stem}": path for path in (observability / "dashboards").glob("*.json")}
    assert shown.keys() == files.keys()
    for name, path in files.items():
        assert shown[name]["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(shown[name]["data"][path.name]) == json.loads(path.read_text())


def test_accounts_services_scaling_and_further_objects_are_as_they_were_said(tmp_path: Path) -> None:
    said = {
        "accounts": {
            "service": {"annotations": {"eks.amazonaws.com/role-arn": "r"}},
            "computing": {"name": "mine"},
        },
        "gateway": {
            "service": {"type": "LoadBalancer", "nodePort": 30080, "spec": {"loadBalancerClass": "c"}},
            "autoscaling": {
                "enabled": True,
                "cpuPercent": 0,
                "requestsInFlight": 40,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            },
        },
        "gangs": {
            "pool": {
                "fallback": {"failureThreshold": 3, "replicas": 1},
                "behavior": {"scaleDown": {"selectPolicy": "Min"}},
            }
        },
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-mine"}},
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\n",
        ],
    }
    (tmp_path / "said.yaml").write_text(yaml.safe_dump(said))
    for mode in (MODES["pool"], MODES["jobs by the launcher"]):
        made = rendered("-f", str(TRIAL), "-f", str(tmp_path / "said.yaml"), "--set", mode)
        found = {(one["kind"], one["metadata"]["name"]): one for one in made}
        accounts = {
            name: one["metadata"].get("annotations")
            for (kind, name), one in found.items()
            if kind == "ServiceAccount"
        }
        assert "turnout-computing" not in accounts and accounts["turnout"] == {
            "eks.amazonaws.com/role-arn": "r"
        }
        assert accounts.get("turnout-manager", accounts["turnout"]) == accounts["turnout"], (
            "it reaches S3, too"
        )
        assert (
            found["StatefulSet", "turnout-worker-cpu"]["spec"]["template"]["spec"]["serviceAccountName"]
            == "mine"
        )
        service = found["Service", "turnout-gateway"]["spec"]
        assert service["loadBalancerClass"] == "c" and service["ports"][0]["nodePort"] == 30080
        (metric,) = found["HorizontalPodAutoscaler", "turnout-gateway"]["spec"]["metrics"]
        assert metric["pods"] == {
            "metric": {"name": "turnout_chat_running"},
            "target": {"type": "AverageValue", "averageValue": "40"},
        }
        assert ("ConfigMap", "turnout-mine") in found and ("ConfigMap", "text") in found
        if scaled := found.get(("ScaledObject", "turnout-gang-wan-tiny-t2v")):
            assert scaled["spec"]["fallback"] == said["gangs"]["pool"]["fallback"]
            assert scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == {
                "scaleDown": {"selectPolicy": "Min"}
            }


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
    old, new = ({one["apiVersion"] for one in rendered(*more, v)} for v in ("1.20.0", "1.36.0"))
    assert old - new == {"policy/v1beta1", "autoscaling/v1"} and new - old == {"policy/v1", "autoscaling/v2"}


def test_lint_finds_nothing() -> None:
    command = [str(HELM), "lint", str(CHART), "-f", str(TRIAL), "--strict"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("gangs.mode=torchserve", "gangs.mode"),
        ("gateway.replcas=3", "gateway.replcas: there is no such value; did you mean gateway.replicas?"),
        ("workers.a.replica=3", "did you mean workers.a.replicas?"),
        ("pod.tolerationz=x", "did you mean pod.tolerations?"),
        (
            "gangs.models.wan-tiny-t2v.nodeselector.a=b",
            "did you mean gangs.models.wan-tiny-t2v.nodeSelector?",
        ),
        ("gangs.models.wan-tiny.pods=2", "there is no such model"),
        ("config.leese_s=3", "did you mean config.lease_s?"),
        ("models.chat.enigne=vllm", "did you mean models.chat.engine?"),
        ("zzz=1", "zzz: there is no such value; the chart's README.md has all"),
        ("gangs.pods.wan-tiny-t2v=2", "gangs.models.NAME.pods"),
        ("gangs.pool.scaleDown.policies={}", "gangs.pool.behavior.scaleDown"),
        ("gateway.replicas=two", "gateway.replicas"),
        ("blobs.mode=s3", "blobs.s3.url"),
        ("redis.mode=external", "redis.external.existingSecret"),
        ("gangs.mode=pool,gangs.models.wan-tiny-t2v.pods=3", "not spread evenly"),
        (f"gangs.mode=job,gangs.job.by=keda,{TWO_PODS}", "the launcher"),
        ("gangs.mode=ray,gangs.ray.gpusPerWorker=8,gangs.ray.cpusPerWorker=4", "cpusPerWorker"),
    ],
)
def test_values_that_make_no_sense_are_refused(wrong: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(said)):
        helm_template("-f", str(TRIAL), "--set", wrong)


PAGES = pytest.mark.parametrize("page", ["docs/kubernetes.md", "docs/zh/kubernetes.md"])


@PAGES
def test_from_an_empty_cluster_to_a_video_it_takes_ten_commands(page: str) -> None:
    """The trial's stage `defaults` does the same."""
    first, gpus, *_ = (
        one.text.strip().splitlines() for one in blocks(CHART.parents[2] / page) if one.language == "sh"
    )
    assert len(first) <= 10
    for shown in (first, gpus):
        assert shown[-1].startswith("turnout generate ") and shown[-1].endswith(".mp4")


@PAGES
def test_the_values_that_the_page_shows_are_good(page: str, tmp_path: Path) -> None:
    shown = [one.text for one in blocks(CHART.parents[2] / page) if one.language == "yaml"]
    assert shown
    for number, text in enumerate(shown):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        check_core_types(rendered("-f", str(file)))


@pytest.mark.parametrize(
    "values", sorted((ROOT / "examples" / "values").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_example_passes_the_strict_schemas(values: Path) -> None:
    """As it is rendered from its values; that the file in deploy/examples is the same is the next test's."""
    found = rendered("-f", str(values))
    assert len(found) > 10
    check_core_types(found)


def test_what_is_made_from_the_chart_is_up_to_date() -> None:
    differing = [
        path.name for path, text in outputs().items() if not path.exists() or path.read_text() != text
    ]
    assert differing == [], f"run {Path(sys.executable).name} deploy/render.py"


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
