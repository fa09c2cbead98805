"""Who holds which credential: what computes is searched for those of Redis, of the object store, and of people."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.deploy.trial.cluster import RELEASE, Cluster, plain_pod, plain_service, wait

S3, BUCKET, PORT = "s3", "vid", 8333
ACCESS, SECRET = "trial-access", "trial-secret-of-the-object-store"
_FOLDER = "/tmp/s3"
_SEARCH = """
import json, os, sys
needles = {name: value.encode() for name, value in json.load(sys.stdin).items()}
longest = max(map(len, needles.values()))
found, processes = {}, 0
def look(path, data):
    for name, value in needles.items():
        if value in data:
            found.setdefault(name, []).append(path)
def look_into(pid):
    look(f"/proc/{pid}/environ", open(f"/proc/{pid}/environ", "rb").read())
    look(f"/proc/{pid}/cmdline", open(f"/proc/{pid}/cmdline", "rb").read())
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in open(f"/proc/{pid}/maps"):
            area, rights = line.split()[:2]
            first, last = (int(end, 16) for end in area.split("-"))
            if not rights.startswith("rw"):
                continue
            for at in range(first, last, 1 << 24):
                try:
                    memory.seek(at)
                    look(f"/proc/{pid}/mem", memory.read(min((1 << 24) + longest, last - at)))
                except (OSError, ValueError):
                    break
for folder in ("/etc/turnout", "/var/lib/turnout", "/var/run", "/tmp", "/dev/shm"):
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                look(os.path.join(where, name), open(os.path.join(where, name), "rb").read(1 << 24))
            except OSError:
                pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        try:
            look_into(pid)
            processes += 1
        except OSError:
            pass
print(json.dumps({"processes": processes, "found": found}))
"""


def found_in(cluster: Cluster, pod: str, needles: Mapping[str, str]) -> set[str]:
    """Which of the needles are in the environment, arguments, files or memory of anything in the pod's first container."""
    words = ("exec", "-i", pod, "--", "/opt/turnout/bin/python", "-c", _SEARCH)
    said = json.loads(cluster.kubectl(*words, stdin=json.dumps(needles), timeout_s=300))
    assert said["processes"], f"{pod}: no process could be read"
    for name, places in said["found"].items():
        cluster.say(f"{pod}: {name} in {sorted(set(places))[:5]}")
    return set(said["found"])


def secrets_of_the_service(cluster: Cluster) -> dict[str, str]:
    names = ("redis-password", "webhook-secret", "admin-key", "worker-key")
    return {name: cluster.secret(name) for name in names}


def credentials(cluster: Cluster) -> str:
    """Objects in S3, gangs by jobs that stay: workers and ranks send and read bytes, and hold none of the keys to them."""
    start_s3(cluster)
    try:
        blobs = (
            "mode=s3",
            f"s3.url=s3://{BUCKET}/turnout",
            f"s3.endpoint=http://{S3}:{PORT}",
            "s3.existingSecret=s3",
        )
        jobs = ("gangs.mode=job", "gangs.job.kind=job", "gangs.job.keepSeconds=300")
        cluster.install(*(f"blobs.{one}" for one in blobs), *jobs)
        cluster.try_out()
        needles = secrets_of_the_service(cluster) | {"s3": SECRET}
        ranks = cluster.items("pods", "-l", f"turnout/launcher={RELEASE}")
        running = [one["metadata"]["name"] for one in ranks if one["status"]["phase"] == "Running"]
        assert running, "a job's gang stays for further tasks"
        assert not found_in(cluster, running[0], needles), (
            "a job's pod holds a token for its own gang and nothing else"
        )
        (worker,) = (one["metadata"]["name"] for one in cluster.pods("worker-cpu"))
        assert found_in(cluster, worker, needles) == {"worker-key"}
        gateway = cluster.pods("gateway")[0]["metadata"]["name"]
        assert found_in(cluster, gateway, needles) >= {"redis-password", "s3"}, (
            "the search finds what is there"
        )
        cluster.uninstall()
    finally:
        cluster.kubectl(
            "delete", f"pod/{S3}", f"service/{S3}", f"secret/{S3}", "--ignore-not-found", "--wait=false"
        )
    return "video in S3 (SeaweedFS) through signed URLs; environment, files and memory of the job's ranks hold no key of Redis, S3, worker or people; the worker's hold its own key alone"


def start_s3(cluster: Cluster) -> None:
    """SeaweedFS, which checks signatures, from this environment's own wheel, in a pod of Turnout's image."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": S3}, "stringData": keys})
    identity = {
        "name": "trial",
        "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    command = (
        f"{_FOLDER}/weed mini -dir={_FOLDER} -ip=127.0.0.1 -ip.bind=0.0.0.0 -s3.port={PORT} -s3.config={_FOLDER}/s3.json "
        f"-bucket={BUCKET} -master.telemetry=false -webdav=false -admin.ui=false -s3.port.iceberg=0 -s3.port.lance=0"
    )
    probe = {"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 2}
    waiting = f"until [ -e {_FOLDER}/go ]; do sleep 0.5; done; exec {command}"
    cluster.apply(plain_pod(cluster, S3, _FOLDER, command=["bash", "-c", waiting], readinessProbe=probe))
    cluster.apply(plain_service(S3, PORT))
    wait(lambda: cluster.phase(S3) == "Running", "the pod for S3", 60)
    weed = Path(sys.executable).with_name("weed")
    files = f"cat >{_FOLDER}/weed && chmod +x {_FOLDER}/weed && touch {_FOLDER}/go"
    config = json.dumps({"identities": [identity]})
    cluster.kubectl("exec", "-i", S3, "--", "bash", "-c", f"cat >{_FOLDER}/s3.json", stdin=config)
    copying = ["bash", "-c", f"kubectl -n {cluster.namespace} exec -i {S3} -- bash -c '{files}' <{weed}"]
    cluster.run(*copying, timeout_s=300)
    cluster.until("condition=Ready", f"pod/{S3}", 120)
