"""A job on Kubernetes: what is made, and what is read of it. `--crds DIR` checks it against the real schemas."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.hosts.kubernetes.manifest_rules import (
    GangTemplate,
    JobKind,
    JobSpec,
    JobTerms,
    manifest,
    model_label,
    read_job,
)
from turnout.fleet.job_rules import JobPhase

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
TERMS = JobTerms("turnout", "pytorchjob", 7200, 7545, 600, 45, OWNER)
JOB = JobSpec("wan", 7, json.dumps({"name": "wan"}))


def made(kind: JobKind, pods: int) -> dict[str, Any]:
    return manifest(replace(TERMS, kind=kind), GangTemplate(pods, TEMPLATE), JOB)


def test_a_pytorch_job_has_a_pod_for_the_leader_and_one_for_each_other_share_of_the_ranks() -> None:
    job = made("pytorchjob", 2)
    assert job["metadata"]["name"] == "turnout-wan-611f97-7"
    assert job["metadata"]["ownerReferences"] == [OWNER]
    policy = job["spec"]["runPolicy"]
    assert (policy["activeDeadlineSeconds"], policy["ttlSecondsAfterFinished"], policy["backoffLimit"]) == (
        7545,
        600,
        0,
    )
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: r["replicas"] for name, r in replicas.items()} == {"Master": 1, "Worker": 1}
    pod = replicas["Worker"]["template"]
    [container] = pod["spec"]["containers"]
    assert container["name"] == "pytorch"
    assert container["args"] == [
        *("rank", "--model", "wan", "--once", "--idle-exit", "30", "--deadline", "7200")
    ]
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
    names = [JobSpec(model, 7, "").name for model in ("W" * 100, "w" * 100, "a/b", "a-b", "Wan 2.2 ")]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 40 for name in names)
    labels = [model_label(model) for model in ("W" * 100, "w" * 100, "a/b", "a-b", "wan2.2")]
    assert len(set(labels)) == 5 and "wan2.2" in labels
    assert all(
        re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", one) and len(one) <= 63 for one in labels
    )


def test_the_entry_point_of_a_ray_job_names_its_gang_after_the_job() -> None:
    cluster = made("rayjob", 2)["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "1"}
    assert "restartPolicy" not in cluster["headGroupSpec"]["template"]["spec"], "Ray sets it"
    words = made("rayjob", 2)["spec"]["entrypoint"]
    assert words.startswith(f"turnout gang --ray --gang {JOB.name}-0 --model wan --once ")


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


def test_what_keeps_a_pod_from_starting_is_said_in_words() -> None:
    job = made("job", 1)
    pulling = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    assert status(job, {}, {}, pulling)[1] == "the image of its pods cannot be pulled (ImagePullBackOff)"
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert status(job, {}, {"conditions": [full]})[1] == "no node has room for its pods: 0/3 nodes"
    assert status(job, {}, {"phase": "Pending"}) == (JobPhase.ACTIVE, "")
    assert read_job({"metadata": {"name": "x"}}, [], 0.0) is None
