"""A job on Kubernetes: what is made, and what is read of it. `--crds DIR` checks it against the real schemas."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import Any

import kubernetes_validate
import pytest

from turnout.fleet.hosts.kubernetes.manifest_rules import (
    GangTemplate,
    JobKind,
    JobSpec,
    JobTerms,
    manifest,
    model_label,
    read_job,
    token_secret,
)
from turnout.fleet.job_rules import JobPhase, JobView

TEMPLATE = {
    "metadata": {"labels": {"app": "turnout"}},
    "spec": {
        "containers": [
            {
                "name": "gang",
                "image": "turnout-gang:1",
                "args": ["rank"],
                "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
                "volumeMounts": [{"name": "weights", "mountPath": "/weights"}],
                "resources": {"limits": {"nvidia.com/gpu": 4}},
            }
        ],
        "volumes": [{"name": "weights", "emptyDir": {}}],
    },
}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "turnout", "uid": "1"}
TERMS = JobTerms("turnout", "pytorchjob", "http://gateway:8000", 7200, 7545, 600, 45, OWNER)
JOB = JobSpec("wan", 7, json.dumps({"name": "wan"}))


def made(kind: JobKind, pods: int) -> dict[str, Any]:
    return manifest(replace(TERMS, kind=kind), GangTemplate(pods, TEMPLATE), JOB)


LABELS = {
    "turnout/launcher": "turnout",
    "turnout/model": "wan",
    "turnout/number": "7",
    "turnout/job": "turnout-wan-611f97-7",
}
GANG_ARGS = [
    *(
        "--model",
        "wan",
        "--gang",
        "turnout-wan-611f97-7",
        "--deadline",
        "7200",
        "--once",
        "--idle-exit",
        "30",
    ),
    *("--join", "http://gateway:8000", "--token-file", "/var/run/turnout/gang/token", "--allow-plaintext"),
]
PROBES: dict[str, Any] = {
    "startupProbe": {
        "exec": {"command": ["test", "-e", "/tmp/alive"]},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 300,
    },
    "livenessProbe": {
        "exec": {"command": ["sh", "-c", 'test -n "$(find /tmp/alive -mmin -0.25)"']},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    },
}
POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "turnout", **LABELS}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 45,
        "containers": [
            {
                "name": "pytorch",
                "image": "turnout-gang:1",
                "args": ["rank", *GANG_ARGS, "--alive-file", "/tmp/alive"],
                **PROBES,
                "env": [
                    {"name": "NCCL_DEBUG", "value": "WARN"},
                    {"name": "TURNOUT_GANG_MODEL", "value": JOB.declared},
                ],
                "volumeMounts": [{"name": "weights", "mountPath": "/weights"}],
                "resources": {"limits": {"nvidia.com/gpu": 4}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "volumes": [{"name": "weights", "emptyDir": {}}],
    },
}
ENDS = {"backoffLimit": 0, "activeDeadlineSeconds": 7545, "ttlSecondsAfterFinished": 600}


def pod_with(changes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """POD with these changes of its container, and of its spec; None takes something away."""
    container = {**POD["spec"]["containers"][0], **changes}
    merged = {**POD["spec"], **spec, "containers": [{k: v for k, v in container.items() if v is not None}]}
    return {**POD, "spec": {k: v for k, v in merged.items() if v is not None}}


def leading(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with the gang's token, which no other pod of the gang has."""
    (container,) = pod["spec"]["containers"]
    mount = {"name": "gang-token", "mountPath": "/var/run/turnout/gang", "readOnly": True}
    volume = {"name": "gang-token", "secret": {"secretName": "turnout-wan-611f97-7", "optional": False}}
    spec = {
        **pod["spec"],
        "volumes": [*pod["spec"]["volumes"], volume],
        "containers": [{**container, "volumeMounts": [*container["volumeMounts"], mount]}],
    }
    return {**pod, "spec": spec}


def ray_spec() -> dict[str, Any]:
    # The operator's words; Ray sets the policy, and runs what our probes would look for elsewhere.
    pod = pod_with({"args": ["rank"], **dict.fromkeys(PROBES)}, restartPolicy=None)
    head = pod_with(
        {**dict.fromkeys(PROBES), "args": ["rank"], "resources": {"limits": {}}}, restartPolicy=None
    )
    ranks = {"groupName": "ranks", "replicas": 2, "minReplicas": 2, "maxReplicas": 2}
    return {
        "entrypoint": " ".join(["turnout gang --ray", *GANG_ARGS]),
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        **ENDS,
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {"num-cpus": "1"}, "template": leading(head)},
            "workerGroupSpecs": [{**ranks, "rayStartParams": {}, "template": pod}],
        },
    }


def pytorch_spec(workers: int) -> dict[str, Any]:
    pod = pod_with({"ports": [{"name": "pytorchjob-port", "containerPort": 23456}]})
    others = {"Worker": {"replicas": workers, "restartPolicy": "Never", "template": pod}}
    return {
        "runPolicy": {**ENDS, "cleanPodPolicy": "Running"},
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "Never", "template": leading(pod)},
            **(others if workers else {}),
        },
    }


@pytest.mark.parametrize(
    ("kind", "pods", "api", "spec"),
    [
        ("job", 1, ("batch/v1", "Job"), {**ENDS, "template": leading(POD)}),
        ("pytorchjob", 1, ("kubeflow.org/v1", "PyTorchJob"), pytorch_spec(workers=0)),
        ("pytorchjob", 3, ("kubeflow.org/v1", "PyTorchJob"), pytorch_spec(workers=2)),
        ("rayjob", 2, ("ray.io/v1", "RayJob"), ray_spec()),
    ],
)
def test_a_job_is_the_operators_pods_with_our_command_ends_and_labels(
    kind: JobKind, pods: int, api: tuple[str, str], spec: dict[str, Any]
) -> None:
    metadata = {"name": "turnout-wan-611f97-7", "labels": LABELS, "ownerReferences": [OWNER]}
    assert made(kind, pods) == {"apiVersion": api[0], "kind": api[1], "metadata": metadata, "spec": spec}


def test_a_gang_that_is_kept_renders_on_and_tells_what_it_is_made_of() -> None:
    kept = replace(TERMS, keep_s=300, stays_s=86400)
    job = manifest(kept, GangTemplate(1, TEMPLATE), JOB)
    [container] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    said = " ".join(container["args"])
    assert "--once" not in said and "--idle-exit 300 --leave-after 86400" in said
    made_of = job["metadata"]["labels"]["turnout/kept"]
    again = manifest(kept, GangTemplate(1, TEMPLATE), replace(JOB, number=8))
    assert again["metadata"]["labels"]["turnout/kept"] == made_of, "its number does not matter"
    for other in (
        manifest(kept, GangTemplate(1, {**TEMPLATE, "metadata": {}}), JOB),
        manifest(kept, GangTemplate(1, TEMPLATE), replace(JOB, declared="{}")),
        manifest(replace(kept, keep_s=60), GangTemplate(1, TEMPLATE), JOB),
    ):
        assert other["metadata"]["labels"]["turnout/kept"] != made_of


def test_a_job_has_the_labels_and_annotations_of_those_who_queue_it() -> None:
    queued = replace(TERMS, labels={"kueue.x-k8s.io/queue-name": "gpus"}, annotations={"a/b": "c"})
    metadata = manifest(queued, GangTemplate(1, TEMPLATE), JOB)["metadata"]
    assert metadata["labels"] == {"kueue.x-k8s.io/queue-name": "gpus", **LABELS}
    assert metadata["annotations"] == {"a/b": "c"}


@pytest.mark.parametrize("spec", [{"suspend": True}, {"runPolicy": {"suspend": True}}])
def test_a_job_that_a_queue_holds_back_is_suspended(spec: dict[str, Any]) -> None:
    job = {"metadata": {"name": "j", "labels": LABELS}, "spec": spec}
    view = read_job(job, (), 0.0)
    assert view is not None and view.suspended and view.waits


def test_what_the_template_says_of_a_pod_stays_and_what_is_ours_is_set_once() -> None:
    own = {"runAsUser": 7}
    spec: dict[str, Any] = {
        "securityContext": own,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 9,
        "containers": [
            {
                "securityContext": own,
                "env": [{"name": "MINE", "value": "x"}, {"name": "TURNOUT_GANG_MODEL", "value": "y"}],
                "ports": [{"name": "pytorchjob-port", "containerPort": 1}, {"containerPort": 2}],
            },
            {"name": "sidecar"},
        ],
    }
    terms = replace(TERMS, owner=None)
    job = manifest(terms, GangTemplate(1, {"spec": spec}), JOB)
    assert "ownerReferences" not in job["metadata"]
    template = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    assert template["metadata"] == {"labels": LABELS}
    found = template["spec"]
    kept = ("securityContext", "automountServiceAccountToken", "terminationGracePeriodSeconds")
    assert {name: found[name] for name in kept} == {name: spec[name] for name in kept}
    first, second = found["containers"]
    assert second == {"name": "sidecar"}
    assert first["securityContext"] == own
    assert [one["name"] for one in first["env"]] == ["MINE", "TURNOUT_GANG_MODEL"]
    assert first["env"][1]["value"] == JOB.declared
    assert [one["name"] for one in found["volumes"]] == [one["name"] for one in first["volumeMounts"]]
    assert first["ports"] == [{"containerPort": 2}, {"name": "pytorchjob-port", "containerPort": 23456}]


@pytest.mark.parametrize("kind", ["job", "pytorchjob", "rayjob"])
def test_the_secret_with_the_token_goes_with_its_job(kind: JobKind) -> None:
    job = made(kind, 1)
    secret = token_secret(replace(TERMS, kind=kind), JOB.name, "the-uid", "tg-x")
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": "the-uid",
    }
    assert secret == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": JOB.name,
            "labels": {"turnout/launcher": "turnout", "turnout/job": JOB.name},
            "ownerReferences": [owner],
        },
        "immutable": True,
        "stringData": {"token": "tg-x"},
    }
    kubernetes_validate.validate(secret, "1.36", strict=True)


def test_plain_http_is_allowed_where_the_operator_named_it() -> None:
    secure = replace(TERMS, gateway_url="https://videos.example")
    job = manifest(secure, GangTemplate(1, TEMPLATE), JOB)
    [container] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert "--allow-plaintext" not in container["args"]


def test_a_plain_job_of_several_pods_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a plain job has one pod: take pytorchjob for a gang of several$"):
        made("job", 2)


def test_the_template_is_not_changed_and_names_fit_the_api() -> None:
    before = json.dumps(TEMPLATE)
    made("pytorchjob", 2)
    assert json.dumps(TEMPLATE) == before
    names = [JobSpec(model, 7, "").name for model in ("W" * 100, "w" * 100, "a/b", "a-b", "Wan 2.2 ")]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 40 for name in names)
    labels = [model_label(model) for model in ("W" * 100, "w" * 100, "a/b", "a-b", "wan2.2")]
    assert len(set(labels)) == 5 and "wan2.2" in labels
    assert (model_label("a/b"), JobSpec("a/b", 7, "").name) == ("a-b-c14cdd", "turnout-a-b-c14cdd-7")
    digest = sha256(b"W" * 100).hexdigest()[:6]
    told = model_label("W" * 100), JobSpec("W" * 100, 7, "").name
    assert told == (f"{'W' * 50}-{digest}", f"turnout-{'w' * 16}-{digest}-7"), (
        "what an older version made is found"
    )
    assert all(
        re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", one) and len(one) <= 63 for one in labels
    )


def status(job: dict[str, Any], said: dict[str, Any], *pods: dict[str, Any]) -> tuple[JobPhase, str]:
    view = read_job({**job, "status": said}, [{"status": pod} for pod in pods], 5.0)
    assert view is not None
    assert (view.model, view.number, view.age_s) == ("wan", 7, 5.0)
    return view.phase, view.trouble


@pytest.mark.parametrize("kind", ["job", "pytorchjob"])
def test_what_ended_a_job_is_read(kind: JobKind) -> None:
    job = made(kind, 1)
    done = "Complete" if kind == "job" else "Succeeded"
    assert status(job, {"conditions": [{"type": done, "status": "True"}]}) == (JobPhase.SUCCEEDED, "")
    assert status(job, {"conditions": [{"type": "Failed", "status": "False"}]}) == (JobPhase.ACTIVE, "")
    late = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    assert status(job, {"conditions": [late]}) == (JobPhase.FAILED, ""), "its gang fails the task by itself"
    killed = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}
    assert "OOMKilled" in status(job, {"conditions": [{"type": "Failed", "status": "True"}]}, killed)[1]


@pytest.mark.parametrize(
    ("code", "broke"), [(0, False), (1, True), (2, True), (3, False), (5, False), (137, True)]
)
def test_a_gang_that_left_as_it_was_told_is_no_trouble(code: int, broke: bool) -> None:
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    ended = {"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": code}}}]}
    assert bool(status(made("job", 1), failed, ended)[1]) is broke
    on_ray = {"jobStatus": "FAILED", "message": f"Job entrypoint command failed with exit code {code}, …"}
    assert bool(status(made("rayjob", 1), on_ray)[1]) is broke
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert status(made("job", 1), done, ended)[1] == ""


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        ({"jobStatus": "SUCCEEDED"}, JobPhase.SUCCEEDED),
        ({"jobStatus": "FAILED"}, JobPhase.FAILED),
        ({"jobStatus": "STOPPED", "message": "by a user"}, JobPhase.FAILED),
        ({"jobDeploymentStatus": "Failed"}, JobPhase.FAILED),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, JobPhase.ACTIVE),
        ({}, JobPhase.ACTIVE),
    ],
)
def test_what_ray_says_of_a_job_is_read(said: dict[str, Any], phase: JobPhase) -> None:
    assert status(made("rayjob", 1), said) == (phase, "")


def test_all_that_is_read_of_a_job() -> None:
    job = made("job", 1)
    seen = {**job["metadata"], "uid": "u-1", "deletionTimestamp": "now"}
    pod = {"status": {"phase": "Running"}}
    view = JobView(
        "turnout-wan-611f97-7", "u-1", "wan", 7, JobPhase.ACTIVE, "", 5.0, started=True, ending=True
    )
    assert read_job({**job, "metadata": seen}, [pod], 5.0) == view
    odd = {**seen, "labels": {**LABELS, "turnout/number": "x"}}
    assert read_job({**job, "metadata": odd}, [pod], 5.0) == replace(view, number=0)
    kept = {**seen, "labels": {**LABELS, "turnout/kept": "0123"}}
    assert read_job({**job, "metadata": kept}, [pod], 5.0) == replace(view, made_of="0123")
    bare = replace(view, uid="", started=False, ending=False)
    assert read_job({**job, "status": None}, [], 5.0) == bare
    assert read_job({}, [], 5.0) is None
    assert read_job({"metadata": {"labels": None}}, [], 5.0) is None


def test_a_job_has_started_when_one_of_its_pods_has_run() -> None:
    job = made("job", 1)

    def started(*phases: str) -> bool:
        view = read_job(job, [{"status": {"phase": phase}} for phase in phases], 0.0)
        assert view is not None
        return view.started

    assert [started(), started("Pending"), started("Pending", "Running"), started("Failed")] == [
        *(False, False, True, True)
    ]


def test_a_job_that_an_older_version_made_counts_as_one_of_its_model() -> None:
    labels = {"turnout/launcher": "turnout", "turnout/task": "t", "turnout/model": "wan"}
    view = read_job({"metadata": {"name": "turnout-t", "labels": labels}}, [], 0.0)
    assert view is not None and (view.model, view.number, view.active) == ("wan", 0, True)


def container(
    state: dict[str, Any], last: dict[str, Any] | None = None, of: str = "containerStatuses"
) -> Any:
    return {of: [{"state": state, "lastState": last}]}


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
NO_ROOM = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
MEMORY = "its pod was killed because it used more memory than its limit (OOMKilled)"


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            container({"waiting": {"reason": "ImagePullBackOff"}}),
            "the image of its pods cannot be pulled (ImagePullBackOff)",
        ),
        (
            container({"waiting": {"reason": "ErrImagePull"}}, of="initContainerStatuses"),
            "the image of its pods cannot be pulled (ErrImagePull)",
        ),
        (container({"waiting": {"reason": "ContainerCreating"}}), ""),
        (container({"running": {}}, KILLED), MEMORY),
        (container(KILLED), MEMORY),
        (container({"terminated": {"exitCode": 1}}), "its gang broke (exit code 1); see the log of its pods"),
        (container({"terminated": {}}), ""),
        ({"conditions": [{**NO_ROOM, "message": "0/3 nodes"}]}, "no node has room for its pods: 0/3 nodes"),
        ({"conditions": [{**NO_ROOM, "message": "n" * 300}]}, f"no node has room for its pods: {'n' * 200}"),
        ({"conditions": [NO_ROOM]}, "no node has room for its pods: "),
        ({"conditions": [{**NO_ROOM, "type": "Ready"}]}, ""),
        ({"conditions": [{**NO_ROOM, "reason": "Other"}]}, ""),
        ({"phase": "Pending"}, ""),
        (None, ""),
    ],
)
def test_what_is_wrong_with_a_pod_is_said_in_words(pod: Any, words: str) -> None:
    assert status(made("job", 1), {}, {}, pod) == (JobPhase.ACTIVE, words)
