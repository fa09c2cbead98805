"""One task as an object of Kubernetes, and what such an object and its pods tell of it. Plain dicts in and out. Pure.

A job is named after its task, so the API itself refuses a second one. Its pods are those of the template that the operator
gave for the model; only the command and what ties them to the task are set here.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from turnout.fleet.hosts.kubernetes.job_rules import JobPhase, JobView
from turnout.tasks.task_rules import TaskId

JobKind = Literal["job", "pytorchjob", "rayjob"]
Manifest = dict[str, Any]

LAUNCHER, TASK, MODEL, ATTEMPT = "turnout/launcher", "turnout/task", "turnout/model", "turnout/attempt"
_API = {
    "job": ("batch/v1", "Job"),
    "pytorchjob": ("kubeflow.org/v1", "PyTorchJob"),
    "rayjob": ("ray.io/v1", "RayJob"),
}
_CONTAINER = "pytorch"  # Kubeflow looks for this name
_PORT = 23456
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
    """What all jobs of one launcher share. `owner` is an owner reference: when that object goes, so do the jobs."""

    launcher: str
    kind: JobKind
    deadline_s: int
    ttl_s: int
    grace_s: int
    owner: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GangTemplate:
    """A gang's pods: how many, and the template (`metadata`, `spec`) of each."""

    pods: int
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobTask:
    """`declared` is the model as it is registered, in JSON; `attempt` the number of attempts before this job."""

    id: TaskId
    model: str
    declared: str
    attempt: int


def job_name(task: TaskId) -> str:
    return f"turnout-{re.sub(r'[^a-z0-9-]', '-', task.lower())}"[:52].rstrip("-")


def manifest(terms: JobTerms, gang: GangTemplate, task: JobTask) -> Manifest:
    """The object to create. Raises ValueError for a plain job of several pods."""
    api, kind = _API[terms.kind]
    metadata: Manifest = {"name": job_name(task.id), "labels": _labels(terms, task)}
    if terms.owner is not None:
        metadata["ownerReferences"] = [dict(terms.owner)]
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata,
        "spec": _SPECS[terms.kind](terms, gang, task),
    }


def _labels(terms: JobTerms, task: JobTask) -> dict[str, str]:
    model = re.sub(r"[^A-Za-z0-9._-]", "-", task.model)[:63].strip("-._")
    return {LAUNCHER: terms.launcher, TASK: task.id, MODEL: model, ATTEMPT: str(task.attempt)}


def _plain(terms: JobTerms, gang: GangTemplate, task: JobTask) -> Manifest:
    if gang.pods != 1:
        raise ValueError("a plain job has one pod: take pytorchjob for a gang of several")
    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": terms.deadline_s,
        "ttlSecondsAfterFinished": terms.ttl_s,
        "template": _pod(terms, gang, task, _rank_args(task)),
    }


def _pytorch(terms: JobTerms, gang: GangTemplate, task: JobTask) -> Manifest:
    def replicas(count: int) -> Manifest:
        return {
            "replicas": count,
            "restartPolicy": "Never",
            "template": _pod(terms, gang, task, _rank_args(task)),
        }

    others = {"Worker": replicas(gang.pods - 1)} if gang.pods > 1 else {}
    return {
        "runPolicy": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": terms.deadline_s,
            "ttlSecondsAfterFinished": terms.ttl_s,
            "cleanPodPolicy": "Running",  # the others have nothing to do when the first has ended
        },
        "pytorchReplicaSpecs": {"Master": replicas(1), **others},
    }


def _ray(terms: JobTerms, gang: GangTemplate, task: JobTask) -> Manifest:
    pod = _pod(terms, gang, task, None)
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
        "entrypoint": f"turnout gang --ray --model {task.model} --task {task.id}",
        "shutdownAfterJobFinishes": True,
        "activeDeadlineSeconds": terms.deadline_s,
        "ttlSecondsAfterFinished": terms.ttl_s,
        "backoffLimit": 0,
        "submissionMode": "K8sJobMode",
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {"num-cpus": "1"}, "template": deepcopy(pod)},
            "workerGroupSpecs": [workers],
        },
    }


_SPECS = {"job": _plain, "pytorchjob": _pytorch, "rayjob": _ray}


def _rank_args(task: JobTask) -> list[str]:
    return ["rank", "--model", task.model, "--task", task.id]


def _pod(terms: JobTerms, gang: GangTemplate, task: JobTask, args: Sequence[str] | None) -> Manifest:
    """The operator's template with the task in it. What it does not say about security is the strict way."""
    pod: Manifest = deepcopy(dict(gang.template))
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **_labels(terms, task)}
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    spec.setdefault("securityContext", deepcopy(_SECURE_POD))
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("terminationGracePeriodSeconds", terms.grace_s)
    container = spec["containers"][0]
    container["name"] = _CONTAINER
    container.setdefault("securityContext", deepcopy(_SECURE))
    env = [one for one in container.get("env", []) if one["name"] not in ("TURNOUT_GANG_MODEL", "POD_NAME")]
    container["env"] = [
        *env,
        {"name": "TURNOUT_GANG_MODEL", "value": task.declared},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    if args is not None:
        container["args"] = list(args)
        if terms.kind == "pytorchjob":
            ports = [p for p in container.get("ports", []) if p.get("name") != "pytorchjob-port"]
            container["ports"] = [*ports, {"name": "pytorchjob-port", "containerPort": _PORT}]
    return pod


def read_job(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], age_s: float) -> JobView | None:
    """What the API shows of a job and its pods; None for an object that no launcher of ours made."""
    metadata = job.get("metadata", {})
    labels: Mapping[str, str] = metadata.get("labels") or {}
    if TASK not in labels:
        return None
    phase, why = _phase(job.get("status") or {})
    trouble = next((words for pod in pods if (words := _trouble(pod.get("status") or {}))), "")
    attempt = labels.get(ATTEMPT, "0")
    return JobView(
        metadata["name"],
        metadata.get("uid", ""),
        TaskId(labels[TASK]),
        int(attempt) if attempt.isdigit() else 0,
        phase,
        trouble or why,
        age_s,
        ending="deletionTimestamp" in metadata,
    )


def _phase(status: Mapping[str, Any]) -> tuple[JobPhase, str]:
    conditions = {c["type"]: c for c in _objects(status, "conditions") if c.get("status") == "True"}
    if "Complete" in conditions or "Succeeded" in conditions or status.get("jobStatus") == "SUCCEEDED":
        return JobPhase.SUCCEEDED, ""
    if "Failed" in conditions:
        reason = f"{conditions['Failed'].get('reason', '')} {conditions['Failed'].get('message', '')}"
        return JobPhase.FAILED, _DEADLINE if "eadline" in reason else ""
    if status.get("jobDeploymentStatus") == "Failed" or status.get("jobStatus") in ("FAILED", "STOPPED"):
        late = "eadline" in f"{status.get('reason', '')} {status.get('message', '')}"
        return JobPhase.FAILED, _DEADLINE if late else ""
    return JobPhase.ACTIVE, ""


def _object(of: Mapping[str, Any], name: str) -> Manifest:
    return of.get(name) or {}


def _objects(of: Mapping[str, Any], name: str) -> list[Manifest]:
    return of.get(name) or []


_DEADLINE = "it took longer than its deadline allows"
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
        waiting = _object(states[0], "waiting")
        if waiting.get("reason") in _WAITING:
            return f"{_WAITING[waiting['reason']]} ({waiting['reason']})"
    for condition in _objects(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"no node has room for its pods: {str(condition.get('message', ''))[:200]}"
    if status.get("reason") == "DeadlineExceeded":
        return _DEADLINE
    return ""
