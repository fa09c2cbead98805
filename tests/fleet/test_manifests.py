"""A task's job on Kubernetes: what is made, and what is read of it. `--crds DIR` checks it against the real schemas."""

import json
from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.hosts.kubernetes.job_rules import JobPhase
from turnout.fleet.hosts.kubernetes.manifest_rules import (
    GangTemplate,
    JobKind,
    JobTask,
    JobTerms,
    job_name,
    manifest,
    read_job,
)
from turnout.tasks.task_rules import TaskId

TEMPLATE = {
    "metadata": {"labels": {"app": "turnout"}},
    "spec": {
        "containers": [
            {
                "name": "gang",
                "image": "turnout-gang:1",
                "args": ["rank"],
                "env": [{"name": "TURNOUT_REDIS_URL", "value": "redis://redis"}],
                "resources": {"limits": {"nvidia.com/gpu": 4}},
            }
        ]
    },
}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "turnout", "uid": "1"}
TERMS = JobTerms("turnout", "pytorchjob", 7200, 600, 45, OWNER)
TASK = JobTask(TaskId("video_01a1e29a07028eb6897889be0feb"), "wan", json.dumps({"name": "wan"}), 1)


def made(kind: JobKind, pods: int) -> dict[str, Any]:
    return manifest(replace(TERMS, kind=kind), GangTemplate(pods, TEMPLATE), TASK)


def test_a_pytorch_job_has_a_pod_for_the_leader_and_one_for_each_other_share_of_the_ranks() -> None:
    job = made("pytorchjob", 2)
    assert job["metadata"]["name"] == "turnout-video-01a1e29a07028eb6897889be0feb"
    assert job["metadata"]["ownerReferences"] == [OWNER]
    policy = job["spec"]["runPolicy"]
    assert (policy["activeDeadlineSeconds"], policy["ttlSecondsAfterFinished"], policy["backoffLimit"]) == (
        7200,
        600,
        0,
    )
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: r["replicas"] for name, r in replicas.items()} == {"Master": 1, "Worker": 1}
    pod = replicas["Worker"]["template"]
    [container] = pod["spec"]["containers"]
    assert container["name"] == "pytorch"
    assert container["args"] == ["rank", "--model", "wan", "--task", TASK.id]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 45
    assert pod["metadata"]["labels"] == {"app": "turnout", **job["metadata"]["labels"]}
    assert {one["name"] for one in container["env"]} == {
        "TURNOUT_REDIS_URL",
        "TURNOUT_GANG_MODEL",
        "POD_NAME",
    }
    assert "Worker" not in made("pytorchjob", 1)["spec"]["pytorchReplicaSpecs"]


def test_a_plain_job_has_one_pod() -> None:
    job = made("job", 1)
    assert (job["apiVersion"], job["kind"], job["spec"]["backoffLimit"]) == ("batch/v1", "Job", 0)
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    with pytest.raises(ValueError, match="one pod"):
        made("job", 2)


def test_the_template_is_not_changed_and_names_fit_the_api() -> None:
    before = json.dumps(TEMPLATE)
    made("pytorchjob", 2)
    assert json.dumps(TEMPLATE) == before
    assert len(job_name(TaskId("video_" + "f" * 100))) <= 52


def status(job: dict[str, Any], said: dict[str, Any], *pods: dict[str, Any]) -> tuple[JobPhase, str]:
    view = read_job({**job, "status": said}, [{"status": pod} for pod in pods], 5.0)
    assert view is not None
    assert (view.task, view.attempt) == (TASK.id, 1)
    return view.phase, view.trouble


@pytest.mark.parametrize("kind", ["job", "pytorchjob"])
def test_what_ended_a_job_is_read(kind: JobKind) -> None:
    job = made(kind, 1)
    done = "Complete" if kind == "job" else "Succeeded"
    assert status(job, {"conditions": [{"type": done, "status": "True"}]}) == (JobPhase.SUCCEEDED, "")
    assert status(job, {"conditions": [{"type": "Failed", "status": "False"}]}) == (JobPhase.ACTIVE, "")
    late = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    phase, words = status(job, {"conditions": [late]})
    assert (phase, "deadline" in words) == (JobPhase.FAILED, True)
    killed = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}
    assert "OOMKilled" in status(job, {"conditions": [{"type": "Failed", "status": "True"}]}, killed)[1]


def test_what_keeps_a_pod_from_starting_is_said_in_words() -> None:
    job = made("job", 1)
    pulling = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    assert status(job, {}, {}, pulling)[1] == "the image of its pods cannot be pulled (ImagePullBackOff)"
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert status(job, {}, {"conditions": [full]})[1] == "no node has room for its pods: 0/3 nodes"
    assert status(job, {}, {"phase": "Pending"}) == (JobPhase.ACTIVE, "")
    assert read_job({"metadata": {"name": "x"}}, [], 0.0) is None
