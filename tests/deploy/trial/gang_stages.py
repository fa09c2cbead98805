"""Stages for each way to start gangs. Where an operator is not installed its part is played, or the stage says so."""

import json
import time
from typing import Any

from tests.deploy.trial import operators
from tests.deploy.trial.cluster import RELEASE, VIDEO, Cluster, Skipped, told, wait
from tests.deploy.trial.credential_stages import found_in, secrets_of_the_service

GANGS = ("pods", "-l", "app.kubernetes.io/component=gang")
LAUNCHED = ("-l", f"turnout/launcher={RELEASE}")
LONG = f"models.{VIDEO}.rules.max_steps=5000"


def pool(cluster: Cluster) -> str:
    """A fixed pool: what KEDA scales, without KEDA."""
    cluster.install("gangs.mode=pool", "gangs.pool.scaler=none")
    cluster.try_out()
    result = cluster.start_load(100)
    for how in (["--grace-period=60"], ["--grace-period=0", "--force"]):
        time.sleep(15)
        cluster.kubectl("delete", "pod", f"{RELEASE}-gang-{VIDEO}-0", *how, "--wait=false")
        time.sleep(15)
    served = result()
    assert served.get("video"), served
    name = f"{RELEASE}-gang-{VIDEO}-0"
    wait(cluster.settled, "the gang to be ready", 180)
    before, began = cluster.restarts(name), time.monotonic()
    cluster.kubectl("exec", name, "-c", "ranks", "--", "bash", "-c", "kill -STOP -1")
    wait(lambda: cluster.restarts(name) > before, "a gang that hangs to be restarted", 240)
    hung_s = time.monotonic() - began
    wait(cluster.settled, "the gang to be ready", 180)
    cluster.try_out()
    return f"a pool's gang told to leave, then killed, under load: {told(served)}; stopped, it was restarted after {hung_s:.0f} s"


def keda(cluster: Cluster) -> str:
    """0 → N → 0 by KEDA, and nobody is taken away who renders longer than any window."""
    if not cluster.has("keda.sh"):
        raise Skipped("KEDA is not installed")
    sets = ("gangs.pool.cooldownSeconds=20", f"models.{VIDEO}.max_replicas=2", LONG)
    cluster.install("gangs.mode=pool", *sets)
    assert not cluster.items(*GANGS), "no gang is started at install"
    short, long = submit(cluster, 20), submit(cluster, 800)
    wait(lambda: len(cluster.items(*GANGS)) == 2, "two gangs for two tasks", 120)
    assert finish(cluster, short) == finish(cluster, long) == 1
    wait(lambda: not cluster.items(*GANGS), "no gang after the last task", 240)
    return "KEDA: none at install, 0 → 2 → 0, one attempt each though one task took longer than the window"


def group(cluster: Cluster) -> str:
    """A gang over two pods, as LeaderWorkerSet and PyTorchJob start them."""
    if cluster.has("leaderworkerset.x-k8s.io"):
        cluster.install("gangs.mode=pool", "gangs.pool.scaler=none", f"gangs.models.{VIDEO}.pods=2")
        cluster.try_out()
        return "a gang over two pods by LeaderWorkerSet renders"
    cluster.install("gangs.mode=pool", "gangs.pool.scaler=none")
    _without_gangs(cluster)
    rendered = cluster.rendered("gangs.mode=pool", f"gangs.models.{VIDEO}.pods=2")
    (made,) = [one for one in rendered if one["kind"] == "LeaderWorkerSet"]
    templates = made["spec"]["leaderWorkerTemplate"]
    cluster.apply(operators.group_service())
    for operator in operators.GROUPS:
        name = f"group-{operator.lower()}"
        first = f"{name}-0.{operators.GROUP}.{cluster.namespace}.svc.cluster.local"
        for index in range(2):
            places = operators.group_variables(operator, first, index)
            template = templates["workerTemplate" if index else "leaderTemplate"]
            spec = json.loads(json.dumps(template["spec"]))
            spec |= {"hostname": f"{name}-{index}", "subdomain": operators.GROUP}
            spec["containers"][0]["env"] += [{"name": k, "value": v} for k, v in places.items()]
            labels = template["metadata"]["labels"] | {"played": operators.GROUP}
            metadata = template["metadata"] | {"name": f"{name}-{index}", "labels": labels}
            cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        cluster.try_out()
        wait(cluster.settled, "both pods to be ready", 60)
        cluster.say(f"a gang over two pods as {operator} starts them renders, and both are ready")
        cluster.kubectl("delete", "pod", f"{name}-0", f"{name}-1")
    cluster.kubectl("delete", "service", operators.GROUP)
    return "gangs over two pods, with the variables of LeaderWorkerSet and of PyTorchJob (their part is played), render and are ready"


def _without_gangs(cluster: Cluster) -> None:
    """The pool's own gang leaves before others are started: it would take their task."""
    cluster.kubectl("scale", "statefulset", f"{RELEASE}-gang-{VIDEO}", "--replicas=0")
    wait(lambda: not cluster.items(*GANGS), "the pool's own gang to leave", 120)


def ray(cluster: Cluster) -> str:
    """Gangs on Ray. Without KubeRay its part is played, with the chart's own pods."""
    sets = ("gangs.mode=ray", "gangs.ray.gpusPerWorker=0", "gangs.ray.cpusPerWorker=3")
    if cluster.has("ray.io"):
        cluster.install(*sets, "gangs.ray.head.resources.requests.cpu=100m")
        cluster.try_out()
        return "a RayService of KubeRay renders"
    cluster.install()
    rendered = cluster.rendered(*sets)
    for one in (one for one in rendered if one["kind"] in ("ConfigMap", "NetworkPolicy")):
        cluster.apply(one)
    cluster.kubectl("rollout", "restart", "deployment")  # they read it when they start
    (service,) = [one for one in rendered if one["kind"] == "RayService"]
    operators.start_pods(service, cluster.namespace, RELEASE, 3, cluster.apply)
    try:
        _use_ray(cluster, service["spec"]["serveConfigV2"])
    finally:  # its gangs would take the tasks of the stages that follow
        cluster.kubectl("delete", "pod", operators.RANKS, operators.HEAD)
        cluster.kubectl("delete", "service", operators.HEAD)
    return "the pods of the RayService (KubeRay's part is played), with its probes, token and GCS state in Redis, render; those with ranks hold no key of the service"


def _use_ray(cluster: Cluster, application: str) -> None:
    time.sleep(5)
    wait(cluster.settled, "the pods of Ray, by the chart's probes", 400)
    deploy = "cat >/tmp/serve.yaml && serve deploy /tmp/serve.yaml -a http://127.0.0.1:8265"
    words = ("exec", "-i", operators.HEAD, "--", "bash", "-lc", deploy)
    cluster.kubectl(*words, stdin=application, timeout_s=300)
    cluster.try_out()
    asked = ("bash", "-lc", "serve status -a http://127.0.0.1:8265")
    status = cluster.kubectl("exec", operators.HEAD, "--", *asked)
    assert "status: RUNNING" in status and f"VideoGenerator-{VIDEO}-0" in status, status
    assert not found_in(cluster, operators.RANKS, secrets_of_the_service(cluster)), "ranks on Ray hold no key"


def once(cluster: Cluster) -> str:
    """KEDA's ScaledJob: where there is no KEDA, the Job that it would make for a task."""
    if cluster.has("keda.sh"):
        cluster.install("gangs.mode=job", "gangs.job.by=keda")
        cluster.try_out()
        return "KEDA's ScaledJob renders a task"
    cluster.install("gangs.mode=pool", "gangs.pool.scaler=none")
    _without_gangs(cluster)
    rendered = cluster.rendered("gangs.mode=job", "gangs.job.by=keda")
    (scaled,) = [one for one in rendered if one["kind"] == "ScaledJob"]
    result = cluster.start_load(5, chat="")
    spec = scaled["spec"]["jobTargetRef"]
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": spec})
    served = result()
    assert served.get("video") == 1, served
    cluster.until("condition=complete", "job/once", 60)
    cluster.kubectl("delete", "job", "once")
    return "a Job as ScaledJob makes it (KEDA's part is played) rendered one task and ended with 0"


def job(cluster: Cluster) -> str:
    """The launcher's jobs, killed; those that have ended stay to be read."""
    cluster.install("gangs.mode=job", "gangs.job.kind=job")
    cluster.try_out()
    result = cluster.start_load(90, videos=2)
    time.sleep(20)
    for pod in running(cluster):  # a killed one gets another job; those that have ended are to be read
        name = pod["metadata"]["name"]
        cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
    served = result()
    assert served.get("video"), served
    ended = [one for one in cluster.items("jobs", *LAUNCHED) if one["status"].get("completionTime")]
    time.sleep(20)
    after = {one["metadata"]["uid"] for one in cluster.items("jobs", *LAUNCHED)}
    assert ended and {one["metadata"]["uid"] for one in ended} <= after, "ttlSeconds is kept"
    oldest = ended[0]["metadata"]["name"]
    assert "task claimed" in cluster.kubectl("logs", f"job/{oldest}")
    return f"the launcher's jobs, their pods killed at one moment: {told(served)}; {len(ended)} ended jobs stayed with their logs"


def kept(cluster: Cluster) -> str:
    """Gangs that stay for further tasks: as many as needed, fewer when idle, and none is taken away that renders."""
    keep_s = 25
    sets = (f"gangs.job.keepSeconds={keep_s}", "gangs.job.parallel=2", LONG)
    cluster.install("gangs.mode=job", "gangs.job.kind=job", *sets)
    earlier = _job_ids(cluster)  # of another stage: they stay for ttlSeconds, and may end meanwhile
    short, long = submit(cluster, 10), submit(cluster, 1500)
    wait(lambda: len(running(cluster)) == 2, "two jobs for two tasks", 180)
    assert finish(cluster, short) == 1
    wait(lambda: len(running(cluster)) == 1, "the idle gang to leave", 240)
    state = cluster.ask("GET", f"/v1/videos/{long}")
    assert (state["status"], state["attempt"]) == ("in_progress", 1), state
    assert finish(cluster, long) == 1
    made = _job_ids(cluster) - earlier
    third = submit(cluster, 10)
    assert finish(cluster, third) == 1
    assert _job_ids(cluster) - earlier <= made, "the gang that had rendered took it"
    wait(lambda: not running(cluster), "the last gang to leave", 240)
    return f"kept gangs: 0 → 2 → 1 → 0 by what is idle; a task of 1,500 steps was not moved; attempts 1, {len(made)} jobs for 3 tasks"


def running(cluster: Cluster) -> list[dict[str, Any]]:
    """Jobs of the launcher whose pods run."""
    found = cluster.items("pods", *LAUNCHED)
    return [
        one
        for one in found
        if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
    ]


def _job_ids(cluster: Cluster) -> set[str]:
    return {one["metadata"]["uid"] for one in cluster.items("jobs", *LAUNCHED)}


def submit(cluster: Cluster, steps: int) -> str:
    return cluster.ask("POST", "/v1/videos", {"model": VIDEO, "prompt": "a red square", "steps": steps})["id"]


def finish(cluster: Cluster, task: str) -> int:
    """Waits for it, and says how many attempts it took."""
    state: dict[str, Any] = {}

    def ended() -> bool:
        state.update(cluster.ask("GET", f"/v1/videos/{task}"))
        assert state["status"] not in ("failed", "cancelled"), state
        return state["status"] == "completed"

    wait(ended, "the task to end", 900)
    return int(state["attempt"])
