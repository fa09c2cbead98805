"""The worker's door: who gets in, to what, and that every one who got in is counted out."""

import httpx
import pytest
from tests.conftest import wait_until
from tests.worker.conftest import MODEL, Bench

from turnout.domain.errors import NotFound, TurnoutError, Unauthorized, Unavailable
from turnout.domain.serving import Phase, ReplicaId, Want
from turnout.schemas.relay_tokens import relay_token, relay_token_from_digest
from turnout.schemas.worker_messages import ReplicaOrder
from turnout.worker.direct_access import DirectAccess
from turnout.worker.proxy_app import ProxyDoor, control_app
from turnout.worker.replica_set import ReplicaSet

TOKEN = "s3cret"
SHOWN = f"Bearer {TOKEN}"
CHAT = "/replicas/r1/v1/chat/completions"


def order(want: Want = Want.READY) -> ReplicaOrder:
    return ReplicaOrder(replica=ReplicaId("r1"), model=MODEL, gpus=(), want=want)


async def test_only_the_token_and_known_paths_open_the_door(bench: Bench) -> None:
    async with ReplicaSet(bench.kit(), lambda: None) as hands:
        door = ProxyDoor(hands, lambda: TOKEN)
        hands.follow([order()])
        await wait_until(lambda: hands.reports()[0].phase is Phase.READY, "the replica to be ready")

        refusals: list[tuple[str, str | None, type[TurnoutError]]] = [
            (CHAT, None, Unauthorized),
            (CHAT, "Bearer", Unauthorized),
            (CHAT, "Bearer wrong", Unauthorized),
            (CHAT, f"Basic {TOKEN}", Unauthorized),
            (CHAT, "Bearer \xff", Unauthorized),
            ("/replicas/other/v1/chat/completions", SHOWN, Unavailable),
            ("/replicas/r1/sleep", SHOWN, NotFound),
            ("/replicas/r1/metrics", SHOWN, NotFound),
            ("/replicas/r1/v1/../sleep", SHOWN, NotFound),
            ("/replicas/r1/v1/chat/completions/", SHOWN, NotFound),
            ("/replicas/r1/v1/chat/completions?x=1", SHOWN, NotFound),
            ("/replicas/r1/v1%2fchat/completions", SHOWN, NotFound),
            ("/replicas/r1", SHOWN, NotFound),
            ("/replicas//v1/chat/completions", SHOWN, NotFound),
            ("/v1/chat/completions", SHOWN, NotFound),
        ]
        for target, authorization, error in refusals:
            with pytest.raises(error):
                door.admit(target, authorization)
        assert hands.reports()[0].busy == 0, "a refusal leaves no trace"

        admitted = [door.admit(CHAT, SHOWN) for _ in range(3)]
        assert {a.path for a in admitted} == {"/v1/chat/completions"}
        assert {a.address for a in admitted} == {hands.reports()[0].address}
        assert hands.reports()[0].busy == 3
        for one in admitted:
            one.visit.end()
            one.visit.end()
        assert hands.reports()[0].busy == 0

        hands.follow([order(Want.GONE)])
        with pytest.raises(Unavailable):
            door.admit(CHAT, SHOWN)


async def test_a_worker_without_an_identity_lets_nobody_in(bench: Bench) -> None:
    async with ReplicaSet(bench.kit(), lambda: None) as hands:
        for shown in (None, "Bearer ", "Bearer None"):
            with pytest.raises(Unavailable):
                ProxyDoor(hands, lambda: None).admit(CHAT, shown)


async def test_health_is_open_and_logs_are_not(bench: Bench) -> None:
    async with ReplicaSet(bench.kit(), lambda: None) as hands:
        app = control_app(ProxyDoor(hands, lambda: TOKEN), DirectAccess(hands, ""))
        hands.follow([order()])
        await wait_until(lambda: hands.reports()[0].phase is Phase.READY, "the replica to be ready")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://worker") as client:
            assert (await client.get("/health")).json() == {"status": "ok", "replicas": 1}
            assert (await client.get("/replicas/r1/log")).status_code == 401
            assert (await client.get("/replicas/r1/log", headers={"authorization": SHOWN})).status_code == 200
            missing = await client.get("/replicas/r2/log", headers={"authorization": SHOWN})
            assert missing.status_code == 404
            assert missing.json()["error"]["type"] == "not_found_error"
            assert (await client.get("/")).status_code == 404


def test_the_token_is_not_the_secret_and_follows_from_its_digest() -> None:
    import hashlib

    digest = hashlib.sha256(b"secret").hexdigest()
    assert relay_token("secret") == relay_token_from_digest(digest)
    assert relay_token("secret") not in ("secret", digest)
    assert relay_token("secret") != relay_token("other")
