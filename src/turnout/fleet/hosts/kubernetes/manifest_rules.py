"""A job as an object of Kubernetes, and what such an object and its pods tell of it. Plain dicts in and out. Pure.

Its pods are those of the template that the operator gave for the model; only the command, its probes, the labels and the gang's token are set
here. The token is in a Secret of the job's own name, which only the pod that leads the gang mounts.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from turnout.fleet.job_rules import JobPhase, JobView
from turnout.gang.exit_codes import LEFT

JobKind = Literal["job", "pytorchjob", "rayjob"]
Manifest = dict[str, Any]

LAUNCHER, MODEL, NUMBER, JOB = "turnout/launcher", "turnout/model", "turnout/number", "turnout/job"
KEPT = "turnout/kept"  # what a kept gang was made of: one of another making is replaced
_API = {
    "job": ("batch/v1", "Job"),
    "pytorchjob": ("kubeflow.org/v1", "PyTorchJob"),
    "rayjob": ("ray.io/v1", "RayJob"),
}
_CONTAINER = "pytorch"  # Kubeflow looks for this name
_PORT = 23456
_TOKEN_VOLUME, _TOKEN_DIR, _TOKEN_KEY = "gang-token", "/var/run/turnout/gang", "token"
_ALIVE = "/tmp/alive"
_PROBES: Manifest = {
    "startupProbe": {
        "exec": {"command": ["test", "-e", _ALIVE]},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 300,
    },
    "livenessProbe": {
        "exec": {"command": ["sh", "-c", f'test -n "$(find {_ALIVE} -mmin -0.25)"']},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    },
}
_IDLE_EXIT_S = 30  # a task that was cancelled, or that another gang took, leaves a job without one
_SECURE_POD = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "fsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_SECURE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What all jobs of one launcher share. Their gangs call a gateway at `gateway_url`. A gang fails a task `deadline_s` after
    it took it; Kubernetes ends the job after `end_s`, whatever it does. `owner` is an owner reference: when that object goes, so do
    the jobs. With `keep_s` a gang renders one task after another, leaves when it had none for so long, and takes none after
    `stays_s`. `labels` and `annotations` are the operator's, for those who queue and schedule jobs."""

    launcher: str
    kind: JobKind
    gateway_url: str
    deadline_s: int
    end_s: int
    ttl_s: int
    grace_s: int
    owner: Mapping[str, Any] | None = None
    keep_s: int = 0
    stays_s: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class GangTemplate:
    """A gang's pods: how many, and the template (`metadata`, `spec`) of each."""

    pods: int
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """`number` tells it from the model's other jobs; `declared` is the model as it is registered, in JSON."""

    model: str
    number: int
    declared: str

    @property
    def name(self) -> str:
        """Short: KubeRay and Kubeflow add to it, and shorten what becomes too long."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.model.lower())[:16].strip("-")
        return f"turnout-{slug}-{_digest(self.model)}-{self.number}"


def model_label(model: str) -> str:
    """A value that no other model has, as Kubernetes allows it."""
    slug = re.sub(r"[^A-Za-z0-9._-]", "-", model)[:50].strip("-._")
    return model if slug == model else f"{slug}-{_digest(model)}"


def _digest(model: str) -> str:
    return sha256(model.encode()).hexdigest()[:6]


def manifest(terms: JobTerms, gang: GangTemplate, job: JobSpec) -> Manifest:
    """The object to create. Raises ValueError for a plain job of several pods."""
    api, kind = _API[terms.kind]
    metadata: Manifest = {"name": job.name, "labels": {**terms.labels, **_labels(terms, job)}}
    if terms.keep_s:
        metadata["labels"][KEPT] = making(terms, gang, job)
    if terms.annotations:
        metadata["annotations"] = dict(terms.annotations)
    if terms.owner is not None:
        metadata["ownerReferences"] = [dict(terms.owner)]
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata,
        "spec": _SPECS[terms.kind](terms, gang, job),
    }


def making(terms: JobTerms, gang: GangTemplate, job: JobSpec) -> str:
    """Tells what a kept gang is made of, but for its number."""
    of = [gang.pods, gang.template, job.declared, terms.gateway_url, terms.deadline_s, terms.keep_s]
    return sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


def token_secret(terms: JobTerms, name: str, uid: str, token: str) -> Manifest:
    """The Secret with the token of a job's gang. Kubernetes removes it with the job."""
    api, kind = _API[terms.kind]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": {LAUNCHER: terms.launcher, JOB: name},
            "ownerReferences": [{"apiVersion": api, "kind": kind, "name": name, "uid": uid}],
        },
        "immutable": True,
        "stringData": {_TOKEN_KEY: token},
    }


def _labels(terms: JobTerms, job: JobSpec) -> dict[str, str]:
    return {
        LAUNCHER: terms.launcher,
        MODEL: model_label(job.model),
        NUMBER: str(job.number),
        JOB: job.name,
    }


def _plain(terms: JobTerms, gang: GangTemplate, job: JobSpec) -> Manifest:
    if gang.pods != 1:
        raise ValueError("a plain job has one pod: take pytorchjob for a gang of several")
    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": terms.end_s,
        "ttlSecondsAfterFinished": terms.ttl_s,
        "template": _leading(_pod(terms, gang, job, _rank_args(terms, job)), job),
    }


def _pytorch(terms: JobTerms, gang: GangTemplate, job: JobSpec) -> Manifest:
    def replicas(count: int, template: Manifest) -> Manifest:
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    pod = _pod(terms, gang, job, _rank_args(terms, job))
    others = {"Worker": replicas(gang.pods - 1, pod)} if gang.pods > 1 else {}
    return {
        "runPolicy": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": terms.end_s,
            "ttlSecondsAfterFinished": terms.ttl_s,
            "cleanPodPolicy": "Running",  # the others have nothing to do when the first has ended
        },
        "pytorchReplicaSpecs": {"Master": replicas(1, _leading(pod, job)), **others},
    }


def _ray(terms: JobTerms, gang: GangTemplate, job: JobSpec) -> Manifest:
    pod = _pod(terms, gang, job, None)
    pod["spec"].pop("restartPolicy", None)
    workers = {
        "groupName": "ranks",
        "replicas": gang.pods,
        "minReplicas": gang.pods,
        "maxReplicas": gang.pods,
        "rayStartParams": {},
        "template": pod,
    }
    return {
        "entrypoint": shlex.join(["turnout", "gang", "--ray", *_gang_args(terms, job)]),
        "shutdownAfterJobFinishes": True,
        "activeDeadlineSeconds": terms.end_s,
        "ttlSecondsAfterFinished": terms.ttl_s,
        "backoffLimit": 0,
        "submissionMode": "K8sJobMode",
        "rayClusterSpec": {
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "1"},
                "template": _without_devices(_leading(pod, job)),
            },
            "workerGroupSpecs": [workers],
        },
    }


def _without_devices(pod: Manifest) -> Manifest:
    """The head holds no rank: GPUs and network cards that it asked for would lie idle."""
    resources = pod["spec"]["containers"][0].get("resources", {})
    for kind in ("requests", "limits"):
        if kind in resources:
            resources[kind] = {name: value for name, value in resources[kind].items() if "/" not in name}
    return pod


_SPECS = {"job": _plain, "pytorchjob": _pytorch, "rayjob": _ray}


def _gang_args(terms: JobTerms, job: JobSpec) -> list[str]:
    plaintext = ["--allow-plaintext"] if terms.gateway_url.startswith("http://") else []
    kept = ("--idle-exit", str(terms.keep_s), "--leave-after", str(terms.stays_s))
    return [
        *("--model", job.model, "--gang", job.name, "--deadline", str(terms.deadline_s)),
        *(kept if terms.keep_s else ("--once", "--idle-exit", str(_IDLE_EXIT_S))),
        *("--join", terms.gateway_url, "--token-file", f"{_TOKEN_DIR}/{_TOKEN_KEY}", *plaintext),
    ]


def _rank_args(terms: JobTerms, job: JobSpec) -> list[str]:
    return ["rank", *_gang_args(terms, job), "--alive-file", _ALIVE]


def _pod(terms: JobTerms, gang: GangTemplate, job: JobSpec, args: Sequence[str] | None) -> Manifest:
    """The operator's template with the command in it. What it does not say about security is the strict way."""
    pod: Manifest = deepcopy(dict(gang.template))
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **_labels(terms, job)}
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    spec.setdefault("securityContext", deepcopy(_SECURE_POD))
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("terminationGracePeriodSeconds", terms.grace_s)
    container = spec["containers"][0]
    container["name"] = _CONTAINER
    container.setdefault("securityContext", deepcopy(_SECURE))
    env = [one for one in container.get("env", []) if one["name"] != "TURNOUT_GANG_MODEL"]
    container["env"] = [*env, {"name": "TURNOUT_GANG_MODEL", "value": job.declared}]
    if args is not None:
        container["args"] = list(args)
        for name, probe in _PROBES.items():
            container.setdefault(name, deepcopy(probe))
        if terms.kind == "pytorchjob":
            ports = [p for p in container.get("ports", []) if p.get("name") != "pytorchjob-port"]
            container["ports"] = [*ports, {"name": "pytorchjob-port", "containerPort": _PORT}]
    return pod


def _leading(pod: Manifest, job: JobSpec) -> Manifest:
    """The pod that leads the gang: it has the gang's token, as a file. It waits for the Secret, which is made after the job."""
    led = deepcopy(pod)
    spec = led["spec"]
    volume = {"name": _TOKEN_VOLUME, "secret": {"secretName": job.name, "optional": False}}
    spec["volumes"] = [*spec.get("volumes", []), volume]
    container = spec["containers"][0]
    mount = {"name": _TOKEN_VOLUME, "mountPath": _TOKEN_DIR, "readOnly": True}
    container["volumeMounts"] = [*container.get("volumeMounts", []), mount]
    return led


def read_job(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], age_s: float) -> JobView | None:
    """What the API shows of a job and its pods; None for an object that no launcher of ours made."""
    metadata = job.get("metadata", {})
    labels: Mapping[str, str] = metadata.get("labels") or {}
    if MODEL not in labels:
        return None
    phase, why = _phase(job.get("status") or {})
    statuses = [_object(pod, "status") for pod in pods]
    trouble = next((words for status in statuses if (words := _trouble(status))), why)
    number = labels.get(NUMBER, "0")  # those that 0.2.0 made, for one task each, have none
    return JobView(
        metadata["name"],
        metadata.get("uid", ""),
        labels[MODEL],
        int(number) if number.isdigit() else 0,
        phase,
        "" if phase is JobPhase.SUCCEEDED else trouble,
        age_s,
        started=any(status.get("phase") not in (None, "Pending") for status in statuses),
        ending="deletionTimestamp" in metadata,
        suspended=_suspended(job.get("spec") or {}),
        made_of=labels.get(KEPT, ""),
    )


def _suspended(spec: Mapping[str, Any]) -> bool:
    """Whether somebody holds it back, as Kueue does until there is quota for it."""
    return bool(spec.get("suspend") or _object(spec, "runPolicy").get("suspend"))


def _phase(status: Mapping[str, Any]) -> tuple[JobPhase, str]:
    conditions = {c["type"] for c in _objects(status, "conditions") if c.get("status") == "True"}
    if conditions & {"Complete", "Succeeded"} or status.get("jobStatus") == "SUCCEEDED":
        return JobPhase.SUCCEEDED, ""
    if "Failed" in conditions:
        return JobPhase.FAILED, ""
    if status.get("jobDeploymentStatus") == "Failed" or status.get("jobStatus") in ("FAILED", "STOPPED"):
        said = re.search(r"exit code (\d+)", str(status.get("message", "")))  # Ray's pods are gone by now
        return JobPhase.FAILED, _ended(int(said[1])) if said else ""
    return JobPhase.ACTIVE, ""


def _ended(code: int) -> str:
    """What is wrong with a gang that ended with this code; nothing, if it left as it was told."""
    return "" if code in LEFT else f"its gang broke (exit code {code}); see the log of its pods"


def _object(of: Mapping[str, Any], name: str) -> Manifest:
    return of.get(name) or {}


def _objects(of: Mapping[str, Any], name: str) -> list[Manifest]:
    return of.get(name) or []


_WAITING = {
    "ImagePullBackOff": "the image of its pods cannot be pulled",
    "ErrImagePull": "the image of its pods cannot be pulled",
    "ErrImageNeverPull": "the image of its pods is not on the node",
    "InvalidImageName": "the name of its pods' image is wrong",
    "CreateContainerConfigError": "a Secret or ConfigMap of its pods is missing",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be started",
}


def _trouble(status: Mapping[str, Any]) -> str:
    """What is wrong with a pod, in words for the task's owner; empty: nothing that is known."""
    for container in (*_objects(status, "initContainerStatuses"), *_objects(status, "containerStatuses")):
        states = (_object(container, "state"), _object(container, "lastState"))
        if any(_object(state, "terminated").get("reason") == "OOMKilled" for state in states):
            return "its pod was killed because it used more memory than its limit (OOMKilled)"
        if words := _ended(_object(states[0], "terminated").get("exitCode", 0)):
            return words
        waiting = _object(states[0], "waiting")
        if waiting.get("reason") in _WAITING:
            return f"{_WAITING[waiting['reason']]} ({waiting['reason']})"
    for condition in _objects(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"no node has room for its pods: {str(condition.get('message', ''))[:200]}"
    return ""
