"""Stages of a release's life: killed, hung, upgraded, removed and made again, under a quota, on another Redis."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.render import CHART
from tests.deploy.trial.cluster import (
    CHAT,
    RELEASE,
    VIDEO,
    Cluster,
    Skipped,
    plain_pod,
    plain_service,
    quiet,
    told,
    wait,
)
from tests.pace import patient


def defaults(cluster: Cluster) -> str:
    """As a newcomer installs it: no values at all."""
    tag = ["--set", f"images.tag={cluster.tag}"] if cluster.tag else []
    began = time.monotonic()
    cluster.install(values=[*tag, *(word for file in cluster.more for word in ("-f", file))])
    ready_s = time.monotonic() - began
    cluster.try_out()
    with cluster.forwarded() as url, TemporaryDirectory() as folder:
        file = Path(folder) / "square.mp4"
        environ = {**os.environ, "TURNOUT_URL": url, "TURNOUT_API_KEY": cluster.admin_key}
        words = ["generate", "a red square moving to the right", "-o", str(file)]
        command = [str(Path(sys.executable).parent / "turnout"), *words]
        subprocess.run(command, check=True, env=environ, timeout=patient(300), capture_output=True)
        assert file.read_bytes()[4:8] == b"ftyp"
    cluster.remove()
    return f"without values: ready after {ready_s:.0f} s; a video and a chat from inside, a video by the command line from outside; removed, nothing left"


def removed(cluster: Cluster) -> str:
    cluster.remove()
    cluster.run("kubectl", "delete", "namespace", cluster.namespace, timeout_s=300)
    return "uninstalled; nothing is left"


def killed(cluster: Cluster, next_tag: str | None, restart_node: str | None) -> str:
    cluster.install()
    cluster.try_out()
    found = cluster.pods()
    for pod in found:
        name = pod["metadata"]["name"]
        cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        time.sleep(2)
        wait(cluster.settled, "a new pod", 240)
        cluster.try_out()
        cluster.say(f"{name} killed; the next one serves")
    result = cluster.start_load(120)
    time.sleep(10)
    cluster.install("config.lease_s=16", *([f"images.tag={next_tag}"] if next_tag else []))
    served = result()
    seen = f"{len(found)} pods killed in turn; upgrade{' to another image' if next_tag else ''} under load: {told(served)}"
    assert served["video"] and served["stream"], served
    if restart_node:
        subprocess.run(restart_node, shell=True, check=True, timeout=patient(300))
        wait(lambda: quiet(cluster.settled), "the node to be back", 300)
        cluster.try_out()
        seen += "; node restarted, it serves"
    return seen


def hung(cluster: Cluster) -> str:
    """One pod of each kind is stopped (SIGSTOP): its port still takes connections."""
    cluster.install("gateway.lingerSeconds=5", "gateway.drainSeconds=5")
    cluster.try_out()
    seen: list[str] = []
    for component in ("worker-cpu", "manager", "gateway", "redis"):
        name = cluster.pods(component)[0]["metadata"]["name"]
        before, began = cluster.restarts(name), time.monotonic()
        cluster.kubectl("exec", name, "--", "bash", "-c", "kill -STOP -1")
        if component == "worker-cpu":
            cluster.turnout("chat", CHAT, "Say hello.", "--max-tokens", "4")
            seen.append(f"a chat was served {time.monotonic() - began:.0f} s after its worker was stopped")
        wait(lambda name=name, before=before: cluster.restarts(name) > before, f"{name} to be restarted", 240)
        seen.append(f"{component} restarted after {time.monotonic() - began:.0f} s")
        wait(cluster.settled, "all pods to be ready", 180)
        cluster.try_out()
        cluster.say(seen[-1])
    return "; ".join(seen)


def again(cluster: Cluster) -> str:
    """Removed and made again on the claims that stayed; then on a restored copy; then on another Redis."""
    keep = "blobs.claim.keep=true"
    cluster.install(keep)
    user = cluster.ask("POST", "/v1/keys", {"tenant": "t", "role": "user"})["token"]
    task = cluster.ask("POST", "/v1/videos", {"model": VIDEO, "prompt": "a red square"}, user)["id"]
    wait(
        lambda: cluster.ask("GET", f"/v1/videos/{task}", key=user)["status"] == "completed", "the video", 300
    )
    first = cluster.admin_key
    cluster.uninstall()
    assert not cluster.items("secret", "-l", f"app.kubernetes.io/instance={RELEASE}")
    cluster.install(keep)
    assert cluster.admin_key != first
    cluster.try_out()
    assert cluster.ask("GET", f"/v1/videos/{task}", key=user)["status"] == "completed", "data and keys stayed"
    cluster.say("made again on its claims; it serves")
    _restore_into_a_new_one(cluster, keep, user, task)
    cluster.say("restored from a copy; it serves")
    _move_to_another_redis(cluster, keep)
    cluster.remove()
    cluster.kubectl("delete", "pvc", f"{RELEASE}-blobs", "--ignore-not-found")
    return "uninstalled and installed on its claims, on a restored copy, on another Redis and back: everything serves, users' keys and videos stay"


def _restore_into_a_new_one(cluster: Cluster, keep: str, user: str, task: str) -> None:
    cluster.turnout("backup", "/tmp/copy")
    copied = cluster.kubectl(*cluster.in_gateway(), "base64", "/tmp/copy")
    cluster.uninstall()
    cluster.kubectl("delete", "pvc", f"data-{RELEASE}-redis-0")
    cluster.install(keep)
    cluster.kubectl(*cluster.in_gateway(), "sh", "-c", "base64 -d >/tmp/copy", stdin=copied)
    cluster.turnout("restore", "/tmp/copy", "--force")
    time.sleep(5)
    # Not the worker: its key is not in the copy. Any upgrade matches the Secret's keys with what is there.
    wait(lambda: quiet(lambda: bool(cluster.in_gateway())), "gateways to begin anew", 180)
    cluster.install(keep)
    cluster.try_out()
    assert cluster.ask("GET", f"/v1/videos/{task}", key=user)["status"] == "completed"


def _move_to_another_redis(cluster: Cluster, keep: str) -> None:
    pod = plain_pod(
        cluster,
        "other-redis",
        "/var/lib/turnout",
        args=["redis", "--bind", "0.0.0.0"],
        env=[{"name": "TURNOUT_REDIS_PASSWORD", "value": "of-its-own"}],
    )
    cluster.apply(pod)
    cluster.apply(plain_service("other-redis", 6379))
    url = "redis://:of-its-own@other-redis:6379/0"
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "other"},
            "stringData": {"redis-url": url},
        }
    )
    cluster.install(keep, "redis.mode=external", "redis.external.existingSecret=other")
    cluster.try_out()
    cluster.say("on another Redis; it serves")
    cluster.install(keep)
    cluster.try_out()
    cluster.kubectl("delete", "pod/other-redis", "service/other-redis", "secret/other")


def quota(cluster: Cluster) -> str:
    """A namespace where every container must have a limit of CPUs."""
    hard = {"hard": {"limits.cpu": "40"}}
    cluster.remove()
    cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpus"}, "spec": hard})
    try:
        cluster.install("pod.resources.limits.cpu=2")
        cluster.try_out()
        cluster.install("pod.resources.limits.cpu=2", "gangs.mode=job", "gangs.job.kind=job")
        cluster.try_out()
        cluster.remove()
    finally:
        cluster.kubectl("delete", "resourcequota", "cpus")
    return "a quota on limits.cpu: bootstrap, all pods and a job ran with pod.resources.limits.cpu"


def upgrade(cluster: Cluster, from_ref: str | None, from_tag: str | None) -> str:
    """From the chart of the last release, under load."""
    if not from_ref:
        raise Skipped("--from-ref names no release to upgrade from")
    old = Path(cluster.run("mktemp", "-d").strip())
    command = f"git archive {from_ref} deploy/helm/turnout | tar -x -C {old}"
    subprocess.run(["bash", "-c", command], check=True, cwd=CHART.parents[2], timeout=patient(60))
    chart = old / "deploy" / "helm" / "turnout"
    tag = from_tag or cluster.tag
    values = ["-f", str(chart / "values-trial.yaml"), *(["--set", f"images.tag={tag}"] if tag else [])]
    cluster.install(chart=chart, values=values)
    cluster.try_out()
    key = cluster.admin_key
    result = cluster.start_load(150)
    time.sleep(10)
    cluster.install()
    served = result()
    cluster.try_out()
    assert cluster.admin_key == key
    cluster.run("rm", "-rf", str(old))
    return f"from the chart of {from_ref} under load: {told(served)}"
