"""kubectl and helm, bound to one namespace, and what stages ask of a release there."""

import base64
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from deploy.render import CHART, HELM
from tests.pace import Patience, patient

RELEASE = "turnout"
HERE = Path(__file__).parent
VALUES = HERE / "values.yaml"
VIDEO, CHAT = "wan-tiny-t2v", "smollm2"
URL = "http://127.0.0.1:8000"
_LASTING = ("bootstrap", "test", "pull")


class Skipped(Exception):
    """The cluster lacks what the stage needs."""


def yaml_objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def wait(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Longer on a machine that is slow now."""
    patience = Patience(timeout_s)
    while not holds():
        if patience.lost:
            raise TimeoutError(f"waited {patience.waited_s:.0f} s for {what}")
        time.sleep(1)


def quiet(holds: Callable[[], bool]) -> bool:
    """False while the API cannot be asked."""
    try:
        return holds()
    except (RuntimeError, subprocess.TimeoutExpired):
        return False


@dataclass
class Cluster:
    """`more` are further values files. `say` tells how far it is."""

    namespace: str
    tag: str | None
    say: Callable[[str], None]
    more: list[str] = field(default_factory=list[str])

    def run(self, *command: str, stdin: str | None = None, timeout_s: float = 120, check: bool = True) -> str:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=patient(timeout_s), check=False
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

    def has(self, group: str) -> bool:
        return group in self.kubectl("api-versions")

    # Releases.
    def values(self, *sets: str) -> list[str]:
        files = [word for file in (str(VALUES), *self.more) for word in ("-f", file)]
        tag = (f"images.tag={self.tag}",) if self.tag else ()
        return [*files, *(word for one in (*tag, *sets) for word in ("--set", one))]

    def rendered(self, *sets: str) -> list[dict[str, Any]]:
        """What the chart makes for this cluster's version, where the trial plays an operator's part."""
        version = json.loads(self.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        words = ("template", RELEASE, str(CHART), "--kube-version", version)
        return yaml_objects(self.helm(*words, *self.values(*sets)))

    def install(self, *sets: str, chart: Path = CHART, values: list[str] | None = None) -> None:
        """Installs or upgrades, and waits until the bootstrap has ended and all pods of the new revision are ready."""
        values = self.values(*sets) if values is None else values
        command = ("upgrade", "--install", RELEASE, str(chart), *values)
        limit_s = patient(480)
        own = ("--wait", "--wait-for-jobs", "--timeout", f"{limit_s:.0f}s")
        self.helm(*command, *own, timeout_s=limit_s + 40)
        wait(self.settled, "all pods to be ready", 300)

    def uninstall(self) -> None:
        limit_s = patient(260)
        self.helm("uninstall", RELEASE, "--wait", "--timeout", f"{limit_s:.0f}s", timeout_s=limit_s + 40)
        wait(lambda: not self.pods(), "the pods to be gone", 180)

    def remove(self) -> None:
        """With the data; nothing may be left."""
        self.kubectl(
            "delete", "pod", "load", f"{RELEASE}-test", "--ignore-not-found"
        )  # a test that failed stays
        if RELEASE in self.helm("list", "-q"):
            self.uninstall()
        label = f"app.kubernetes.io/instance={RELEASE}"
        self.kubectl("delete", "pvc", "-l", label)
        kinds = "all,configmap,secret,pvc,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget,ingress,job"
        wait(lambda: not self.items(kinds, "-l", label), "everything to be gone", 180)
        launched = f"turnout/launcher={RELEASE}"
        wait(lambda: not self.items("job,pod,secret", "-l", launched), "the jobs to be gone", 180)

    # Pods.
    def pods(self, component: str = "") -> list[dict[str, Any]]:
        """Those that last."""
        found = self.items("pods", "-l", f"app.kubernetes.io/instance={RELEASE},!turnout/launcher")
        named = [(pod, pod["metadata"]["labels"]["app.kubernetes.io/component"]) for pod in found]
        return [pod for pod, part in named if part not in _LASTING and component in ("", part)]

    def settled(self) -> bool:
        found = self.pods()
        return bool(found) and all(_ready(pod) for pod in found)

    def phase(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}", check=False)

    def until(self, condition: str, what: str, timeout_s: float) -> None:
        limit_s = patient(timeout_s)
        words = ("wait", f"--for={condition}", what, f"--timeout={limit_s:.0f}s")
        self.kubectl(*words, timeout_s=limit_s + 30)

    def restarts(self, pod: str) -> int:
        said = self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
        return int(said or 0)

    # Using it.
    def secret(self, name: str) -> str:
        said = self.kubectl("get", "secret", RELEASE, "-o", f"jsonpath={{.data.{name}}}")
        return base64.b64decode(said).decode()

    @property
    def admin_key(self) -> str:
        return self.secret("admin-key")

    def in_gateway(self) -> tuple[str, ...]:
        """The words of kubectl that run something in a gateway's pod, in the same one as before if it is still there."""
        names = sorted(pod["metadata"]["name"] for pod in self.pods("gateway") if _ready(pod))
        if not names:
            raise RuntimeError("no gateway is ready")
        return "exec", "-i", "-c", "gateway", names[0], "--"

    def turnout(self, *words: str, key: str = "", timeout_s: float = 300) -> str:
        """The command, in a gateway's pod."""
        named = ("env", f"TURNOUT_URL={URL}", f"TURNOUT_API_KEY={key or self.admin_key}", "turnout")
        return self.kubectl(*self.in_gateway(), *named, *words, timeout_s=timeout_s)

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        """One call of the API, from a gateway's pod."""
        script = (
            "import json, os, sys, httpx; m, u, k, b = sys.argv[1:]; "
            "r = httpx.request(m, u, headers={'authorization': 'Bearer ' + k}, json=json.loads(b), timeout=60); "
            "print(json.dumps([r.status_code, r.json()]))"
        )
        words = (method, URL + path, key or self.admin_key, json.dumps(body))
        said = self.kubectl(*self.in_gateway(), "/opt/turnout/bin/python", "-c", script, *words)
        status, answer = json.loads(said)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    @contextmanager
    def forwarded(self) -> Generator[str]:
        """The URL of the service, as from a newcomer's own machine."""
        words = ("port-forward", f"service/{RELEASE}-gateway", ":8000")
        command = ["kubectl", "-n", self.namespace, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
            try:
                assert forwarding.stdout
                said = forwarding.stdout.readline()
                yield f"http://127.0.0.1:{said.split('->')[0].strip().rpartition(':')[2]}"
            finally:
                forwarding.terminate()

    def try_out(self) -> None:
        """A video and a chat, from a pod beside the service."""
        limit_s = patient(480)
        try:
            self.helm("test", RELEASE, "--timeout", f"{limit_s:.0f}s", timeout_s=limit_s + 20)
        except RuntimeError:
            for name in ("video", "chat", "models"):
                print(self.kubectl("logs", f"{RELEASE}-test", "-c", name, check=False), file=sys.stderr)
            raise

    def start_load(
        self, seconds: int, chat: str = CHAT, videos: int = 1, node: str = ""
    ) -> Callable[[], dict[str, Any]]:
        """Begins to ask, from a pod on that node if one is named; what is returned waits for the end and says what was served."""
        self.kubectl("delete", "pod", "load", "--ignore-not-found", "--wait")
        script = (HERE / "load.py").read_text()
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
        if node:
            spec["nodeName"] = node
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"}, "spec": spec})
        wait(lambda: self.phase("load") == "Running", "the load to begin", 120)

        def result() -> dict[str, Any]:
            wait(lambda: self.phase("load") in ("Succeeded", "Failed"), "the load to end", seconds + 300)
            said = json.loads(self.kubectl("logs", "load").splitlines()[-1])
            assert not said["failures"], said
            return said["served"]

        return result


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def plain_pod(cluster: Cluster, name: str, folder: str = "/tmp", **container: Any) -> dict[str, Any]:
    """A pod of the trial's own, of Turnout's image, that `restricted` namespaces take. It may write to `folder`."""
    (gateway,) = [
        one
        for one in cluster.rendered()
        if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("-gateway")
    ]
    own = {
        "name": name,
        "image": gateway["spec"]["template"]["spec"]["containers"][0]["image"],
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": folder}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "containers": [own | container],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "securityContext": security,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def plain_service(name: str, port: int) -> dict[str, Any]:
    """Of a pod of the trial's own."""
    spec = {"selector": {"app": name}, "ports": [{"port": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def told(served: dict[str, int]) -> str:
    """What was served, for the table."""
    words = {"models": "requests", "chat": "chats", "stream": "streams", "video": "videos"}
    return (
        ", ".join(f"{served[name]:,} {word}" for name, word in words.items() if served.get(name))
        + ", 0 failures"
    )
