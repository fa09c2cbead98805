"""What the worker's port serves besides relayed requests."""

import httpx
from tests.conftest import wait_until
from tests.worker.conftest import MODEL, Bench

from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.worker.proxy_admission import ProxyAdmission
from turnout.worker.proxy_app import control_app
from turnout.worker.relay_tokens import relay_token, relay_token_from_digest
from turnout.worker.replica_set import ReplicaSet

TOKEN = "s3cret"
SHOWN = f"Bearer {TOKEN}"


def order() -> ReplicaOrder:
    return ReplicaOrder(replica=ReplicaId("r1"), model=MODEL, gpus=(), want=Want.READY)


async def test_health_and_the_proof_are_open_and_logs_are_not(bench: Bench) -> None:
    async with ReplicaSet(bench.context(), lambda: None) as replicas:
        admission = ProxyAdmission(replicas, lambda: TOKEN)
        app = control_app(replicas, admission, lambda nonce: f"proof of {nonce}")
        replicas.follow([order()])
        await wait_until(lambda: replicas.reports()[0].phase is Phase.READY, "the replica to be ready")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://worker") as client:
            assert (await client.get("/health")).json() == {
                "status": "ok",
                "replicas": 1,
                "loops": {},
            }
            assert (await client.get("/replicas/r1/log")).status_code == 401
            assert (await client.get("/replicas/r1/log", headers={"authorization": SHOWN})).status_code == 200
            missing = await client.get("/replicas/r2/log", headers={"authorization": SHOWN})
            assert missing.status_code == 404
            assert missing.json()["error"]["type"] == "not_found_error"
            unknown = await client.get("/")
            assert unknown.status_code == 404
            assert unknown.json()["error"]["type"] == "not_found_error"
            assert (await client.post("/health")).status_code == 404
            assert (await client.get("/probe/abc")).text == "proof of abc"
            assert (await client.get(f"/probe/{'x' * 200}")).status_code == 404


def test_the_token_is_not_the_secret_and_follows_from_its_digest() -> None:
    import hashlib

    digest = hashlib.sha256(b"secret").hexdigest()
    assert relay_token("secret") == relay_token_from_digest(digest)
    assert relay_token("secret") not in ("secret", digest)
    assert relay_token("secret") != relay_token("other")
