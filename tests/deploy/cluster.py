"""Installs the chart on the cluster of KUBECONFIG, uses it, breaks it, upgrades it, and removes it. Unattended; `./dev test-kubernetes
--cluster` runs it. The images are to be there (`deploy/build-images`, then `kind load image-archive` or `ctr images import`).

    python -m tests.deploy.cluster [--namespace NAME] [--tag TAG] [--next-tag TAG] [--only STAGE] [--restart-node COMMAND] [--keep]

Stages: worker (all parts, each pod killed, an upgrade under load, to the images of --next-tag if given), pool, group (a gang over
two pods), once (KEDA's jobs), ray, job (the launcher). KEDA scales where it is there.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.render import CHART, HELM, helm_template
from tests.deploy import operators

RELEASE = "turnout"
VALUES = CHART / "values-trial.yaml"
STAGES = ["worker", "pool", "group", "ray", "once", "job"]
VIDEO, CHAT = "wan-tiny-t2v", "smollm2"


def say(text: str) -> None:
    print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)


class Cluster:
    """kubectl and helm, bound to one namespace."""

    def __init__(self, namespace: str, tag: str | None) -> None:
        self.namespace = namespace
        self.values = ["-f", str(VALUES), *(["--set", f"images.tag={tag}"] if tag else [])]

    def run(self, *command: str, stdin: str | None = None, timeout_s: float = 120, check: bool = True) -> str:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(command)[:300]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def kubectl(self, *words: str, **how: Any) -> str:
        return self.run("kubectl", "-n", self.namespace, *words, **how)

    def helm(self, *words: str, **how: Any) -> str:
        return self.run(str(HELM), "-n", self.namespace, *words, **how)

    def apply(self, one: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(one))

    def items(self, *words: str) -> list[dict[str, Any]]:
        return json.loads(self.kubectl("get", *words, "-o", "json"))["items"]

    def install(self, *sets: str) -> None:
        """Installs or upgrades, and waits until all pods of the new revision are ready."""
        words = [word for one in sets for word in ("--set", one)]
        command = ("upgrade", "--install", RELEASE, str(CHART), *self.values, *words)
        self.helm(*command, "--wait", "--timeout", "6m", timeout_s=400)
        wait(self.settled, "all pods to be ready", 300)

    def pods(self) -> list[dict[str, Any]]:
        found = self.items("pods", "-l", f"app.kubernetes.io/instance={RELEASE},!turnout/launcher")
        lasting = ("bootstrap", "test", "pull")
        return [p for p in found if p["metadata"]["labels"]["app.kubernetes.io/component"] not in lasting]

    def settled(self) -> bool:
        found = self.pods()
        return bool(found) and all(
            "deletionTimestamp" not in pod["metadata"]
            and any(
                c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
            )
            for pod in found
        )

    def try_out(self) -> None:
        """A video and a chat, from a pod beside the service."""
        try:
            self.helm("test", RELEASE, "--timeout", "5m", timeout_s=330)
        except RuntimeError:
            for name in ("video", "chat", "models"):
                print(self.kubectl("logs", f"{RELEASE}-test", "-c", name, check=False), file=sys.stderr)
            raise

    def start_load(self, seconds: int, chat: str = CHAT, videos: int = 1) -> Callable[[], dict[str, Any]]:
        """Begins to ask; what is returned waits for the end and says what was served."""
        self.kubectl("delete", "pod", "load", "--ignore-not-found", "--wait")
        script = (Path(__file__).parent / "load.py").read_text()
        (tested,) = [
            one
            for one in yaml_objects(self.helm("get", "hooks", RELEASE))
            if one["kind"] == "Pod" and one["metadata"]["name"] == f"{RELEASE}-test"
        ]
        spec = tested["spec"]
        container = next(one for one in spec["containers"] if one["name"] == "models")
        more = {"LOAD_S": str(seconds), "CHAT": chat, "VIDEO": VIDEO, "VIDEOS": str(videos)}
        container |= {
            "name": "load",
            "command": ["/opt/turnout/bin/python", "-c", script],
            "args": [],
            "env": container["env"] + [{"name": k, "value": v} for k, v in more.items()],
        }
        spec["containers"] = [container]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"}, "spec": spec}
        self.apply(pod)
        wait(lambda: self.phase("load") == "Running", "the load to begin", 60)

        def result() -> dict[str, Any]:
            wait(lambda: self.phase("load") in ("Succeeded", "Failed"), "the load to end", seconds + 240)
            return json.loads(self.kubectl("logs", "load").splitlines()[-1])

        return result

    def phase(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}", check=False)


def yaml_objects(text: str) -> list[dict[str, Any]]:
    import yaml

    return [one for one in yaml.safe_load_all(text) if one]


def wait(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(1)


def worker_stage(cluster: Cluster, next_tag: str | None, restart_node: str | None) -> None:
    cluster.install()
    say("installed; a video and a chat …")
    cluster.try_out()
    for pod in cluster.pods():
        name = pod["metadata"]["name"]
        cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        wait(
            lambda name=name: (
                name not in [p["metadata"]["name"] for p in cluster.pods()] or cluster.settled()
            ),
            "it",
            60,
        )
        wait(cluster.settled, "a new pod", 180)
        cluster.try_out()
        say(f"{name} killed; the next one serves")
    result = cluster.start_load(120)
    time.sleep(10)
    cluster.install("config.lease_s=16", *([f"images.tag={next_tag}"] if next_tag else []))
    served = result()
    say(f"upgraded under load: {served}")
    assert not served["failures"] and served["served"]["video"] and served["served"]["stream"], served
    if restart_node:
        subprocess.run(restart_node, shell=True, check=True, timeout=300)
        wait(lambda: quiet(cluster.settled), "the node to be back", 300)
        cluster.try_out()
        say("the node was restarted; it serves")


def pool_stage(cluster: Cluster) -> None:
    keda = "keda.sh" in cluster.kubectl("api-versions")
    scaling = [
        "gangs.pool.cooldownSeconds=20",
        "gangs.pool.scaleDown.stabilizationWindowSeconds=10",
        f"models.{VIDEO}.max_replicas=2",
    ]
    cluster.install("gangs.mode=pool", *(scaling if keda else ["gangs.pool.scaler=none"]))
    gangs = ("pods", "-l", "app.kubernetes.io/component=gang")
    if keda:
        wait(lambda: not cluster.items(*gangs), "no gang while there is no task", 180)
        result = cluster.start_load(90, chat="", videos=3)
        wait(lambda: len(cluster.items(*gangs)) == 2, "two gangs for three tasks", 90)
        served = result()
        assert served["served"].get("video") and not served["failures"], served
        wait(lambda: not cluster.items(*gangs), "no gang after the last task", 180)
        say(f"scaled 0 → N → 0: {served}")
    else:
        cluster.try_out()
        result = cluster.start_load(100)
        for how in (["--grace-period=60"], ["--grace-period=0", "--force"]):
            time.sleep(15)
            cluster.kubectl("delete", "pod", f"{RELEASE}-gang-{VIDEO}-0", *how, "--wait=false")
            time.sleep(15)
        served = result()
        say(f"the pool's gang was told to leave, then killed, and came back: {served}")
        assert served["served"].get("video") and not served["failures"], served


def group_stage(cluster: Cluster) -> None:
    """A gang over two pods, as LeaderWorkerSet and PyTorchJob start them. Where there is no operator its part is played: the same
    pod template with the variables that it sets."""
    cluster.install("gangs.mode=pool", "gangs.pool.scaler=none")
    cluster.kubectl("scale", "statefulset", f"{RELEASE}-gang-{VIDEO}", "--replicas=0")
    rendered = helm_template(*cluster.values, "--set", f"gangs.mode=pool,gangs.pods.{VIDEO}=2")
    (group,) = [one for one in yaml_objects(rendered) if one["kind"] == "LeaderWorkerSet"]
    templates = group["spec"]["leaderWorkerTemplate"]
    for operator in operators.GROUPS:
        name = f"group-{operator.lower()}"
        first = f"{name}-0.{RELEASE}-gang-{VIDEO}.{cluster.namespace}.svc.cluster.local"
        for index in range(2):
            places = operators.group_variables(operator, first, index)
            template = templates["workerTemplate" if index else "leaderTemplate"]
            spec = json.loads(json.dumps(template["spec"]))
            spec |= {"hostname": f"{name}-{index}", "subdomain": f"{RELEASE}-gang-{VIDEO}"}
            spec["containers"][0]["env"] += [{"name": k, "value": v} for k, v in places.items()]
            metadata = template["metadata"] | {"name": f"{name}-{index}"}
            cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        cluster.try_out()
        said = cluster.kubectl("logs", f"{name}-0")
        say(f"a gang over two pods as {operator} starts them renders ({said.count('formed')} formed)")
        cluster.kubectl("delete", "pod", f"{name}-0", f"{name}-1")


def ray_stage(cluster: Cluster) -> None:
    """Gangs on Ray. Without KubeRay its part is played, with the chart's own pods."""
    sets = ("gangs.mode=ray", "gangs.ray.gpusPerWorker=0", "gangs.ray.cpusPerWorker=3")
    if "ray.io" in cluster.kubectl("api-versions"):
        cluster.install(*sets, "gangs.ray.head.resources.requests.cpu=100m")
        return cluster.try_out()
    cluster.install()
    rendered = yaml_objects(helm_template(*cluster.values, "--set", ",".join(sets)))
    for config in (one for one in rendered if one["kind"] == "ConfigMap"):
        cluster.apply(config)
    cluster.kubectl("rollout", "restart", "deployment")  # they read it when they start
    (service,) = [one for one in rendered if one["kind"] == "RayService"]
    operators.start_pods(service, cluster.namespace, RELEASE, 3, cluster.apply)
    time.sleep(5)
    wait(cluster.settled, "the pods of Ray, by the chart's probes", 300)
    deploy = "cat >/tmp/serve.yaml && serve deploy /tmp/serve.yaml -a http://127.0.0.1:8265"
    text = service["spec"]["serveConfigV2"]
    cluster.kubectl("exec", "-i", operators.HEAD, "--", "bash", "-lc", deploy, stdin=text, timeout_s=200)
    cluster.try_out()
    status = cluster.kubectl(
        "exec", operators.HEAD, "--", "bash", "-lc", "serve status -a http://127.0.0.1:8265"
    )
    assert "status: RUNNING" in status and f"VideoGenerator-{VIDEO}-0" in status, status
    say("a gang on Ray renders")
    cluster.kubectl("delete", "pod", operators.RANKS, operators.HEAD)
    cluster.kubectl("delete", "service", operators.HEAD)


def once_stage(cluster: Cluster) -> None:
    """KEDA's ScaledJob: where there is no KEDA, the Job that it would make for a task."""
    cluster.install("gangs.mode=pool", "gangs.pool.scaler=none")
    cluster.kubectl("scale", "statefulset", f"{RELEASE}-gang-{VIDEO}", "--replicas=0")
    rendered = helm_template(*cluster.values, "--set", "gangs.mode=job,gangs.job.by=keda")
    (scaled,) = [one for one in yaml_objects(rendered) if one["kind"] == "ScaledJob"]
    result = cluster.start_load(5, chat="")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": scaled["spec"]["jobTargetRef"],
    }
    cluster.apply(job)
    served = result()
    assert served["served"].get("video") == 1 and not served["failures"], served
    cluster.kubectl("wait", "--for=condition=complete", "job/once", "--timeout=60s")
    cluster.kubectl("delete", "job", "once")
    say("a job of one pod rendered one task and ended with 0")


def job_stage(cluster: Cluster) -> None:
    cluster.install("gangs.mode=job", "gangs.job.kind=job")
    cluster.try_out()
    jobs = cluster.items("jobs", "-l", f"turnout/launcher={RELEASE}")
    say(f"a video by a job of its own: {[one['metadata']['name'] for one in jobs]}")
    result = cluster.start_load(90, videos=2)
    time.sleep(20)
    for pod in cluster.items("pods", "-l", f"turnout/launcher={RELEASE}"):  # a killed one gets another job
        cluster.kubectl(
            "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--ignore-not-found"
        )
    served = result()
    assert served["served"].get("video") and not served["failures"], served
    say(f"jobs: {served}")


def remove(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", "load", "--ignore-not-found")
    cluster.helm("uninstall", RELEASE, "--wait", timeout_s=300)
    cluster.kubectl("delete", "pvc", "-l", f"app.kubernetes.io/instance={RELEASE}")
    kinds = "all,configmap,secret,pvc,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget,ingress,job"
    label = f"app.kubernetes.io/instance={RELEASE}"
    wait(lambda: not cluster.items(kinds, "-l", label), "everything to be gone", 180)
    wait(
        lambda: not cluster.items("job,pod", "-l", f"turnout/launcher={RELEASE}"), "the jobs to be gone", 180
    )
    say("uninstalled; nothing is left")


def quiet(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except (RuntimeError, subprocess.TimeoutExpired):
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespace", default="turnout-trial")
    parser.add_argument("--tag")
    parser.add_argument("--next-tag", metavar="TAG")
    parser.add_argument("--only", choices=STAGES, action="append")
    parser.add_argument("--restart-node", metavar="COMMAND")
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    cluster = Cluster(asked.namespace, asked.tag)
    cluster.run("kubectl", "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": asked.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}))  # fmt: skip
    for stage in asked.only or STAGES:
        say(f"— {stage}")
        match stage:
            case "worker":
                worker_stage(cluster, asked.next_tag, asked.restart_node)
            case "pool":
                pool_stage(cluster)
            case "group":
                group_stage(cluster)
            case "ray":
                ray_stage(cluster)
            case "once":
                once_stage(cluster)
            case _:
                job_stage(cluster)
    if not asked.keep:
        remove(cluster)
        cluster.run("kubectl", "delete", "namespace", asked.namespace, timeout_s=300)


began = time.monotonic()
if __name__ == "__main__":
    main()
