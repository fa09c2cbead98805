"""What the launcher asks of Kubernetes' API, by the real client: a server that keeps objects and refuses names that are taken."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from turnout.errors import Unavailable
from turnout.fleet.hosts.kubernetes.job_launcher import ClusterJobs
from turnout.fleet.hosts.kubernetes.manifest_rules import (
    GangTemplate,
    JobSpec,
    JobTerms,
    manifest,
    token_secret,
)

TERMS = JobTerms("turnout", "job", "http://gateway:8000", 60, 90, 60, 45)
JOB = JobSpec("wan", 1, "{}")
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "gang", "image": "x"}]}}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The objects that were made, by path; what is in `refused` may not be made."""
    objects: dict[str, Any] = {}

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            path = self.path.partition("?")[0]
            at = f"{path}/{body['metadata']['name']}"
            if path.rpartition("/")[2] in objects.get("refused", ()):
                return self.answer(403, {"code": 403, "message": "forbidden", "status": "Failure"})
            if at in objects:
                return self.answer(409, {"code": 409, "message": "exists", "status": "Failure"})
            body["metadata"]["uid"] = f"uid-{len(objects)}"
            objects[at] = body
            return self.answer(201, body)

        def answer(self, code: int, said: Any) -> None:
            content = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "video"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        try:
            yield objects
        finally:
            server.shutdown()
            thread.join()


async def test_a_job_is_made_once_and_its_secret_names_it_as_the_owner(kept: dict[str, Any]) -> None:
    jobs = ClusterJobs(TERMS, None)
    wanted = manifest(TERMS, GangTemplate(1, TEMPLATE), JOB)
    job = await jobs.create(wanted)
    assert job is not None and await jobs.create(wanted) is None
    uid = job.uid
    assert (uid, job.name, job.waits, job.suspended) == ("uid-0", JOB.name, True, False)
    for _ in range(2):  # whoever was there before may have made it
        await jobs.create_secret(token_secret(TERMS, JOB.name, uid, "tg-x"))
    made = kept[f"/apis/batch/v1/namespaces/video/jobs/{JOB.name}"]
    volumes = made["spec"]["template"]["spec"]["volumes"]
    secret = kept[f"/api/v1/namespaces/video/secrets/{JOB.name}"]
    assert [one["secret"]["secretName"] for one in volumes] == [secret["metadata"]["name"]]
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", uid)
    assert secret["stringData"] == {"token": "tg-x"} and secret["immutable"] is True
    assert len(kept) == 2


async def test_a_refusal_is_told_without_the_token(kept: dict[str, Any]) -> None:
    kept["refused"] = {"secrets"}
    with pytest.raises(Unavailable, match="refused") as told:
        await ClusterJobs(TERMS, None).create_secret(token_secret(TERMS, JOB.name, "u", "tg-x"))
    assert "tg-x" not in str(told.value)
