"""Many failed logins from one address are told to slow down; a good key from there works all the same."""

import json
from pathlib import Path

import httpx
import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, chatting
from tests.relay.kit import echo
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from turnout.errors import Limited, Unauthorized
from turnout.tenants.login_throttle import LoginThrottle

WRONG = Unauthorized("no", code="invalid_api_key")


def test_failures_are_bounded_by_address_and_forgotten_after_a_minute() -> None:
    now = [0.0]
    throttle = LoginThrottle(lambda: now[0])
    answers = [throttle.refused("10.0.0.1", WRONG) for _ in range(25)]
    assert [isinstance(answer, Limited) for answer in answers] == [False] * 20 + [True] * 5
    assert answers[-1].retry_after_s == 60
    assert throttle.refused("10.0.0.2", WRONG) is WRONG
    assert throttle.refused("", WRONG) is WRONG
    # One subscriber has the whole network, as the relay names it.
    mixed = [throttle.refused(f"2001:db8::{last:x}", WRONG) for last in range(20)]
    assert mixed == [WRONG] * 20
    assert isinstance(throttle.refused("2001:db8::/64", WRONG), Limited)
    now[0] += 60
    assert throttle.refused("10.0.0.1", WRONG) is WRONG


def test_addresses_take_a_bounded_amount_of_memory() -> None:
    throttle = LoginThrottle(lambda: 0.0)
    for number in range(12_000):
        throttle.refused(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}", WRONG)
    assert len(throttle._failed) == 10_000


async def test_a_good_key_works_from_an_address_that_failed_often(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = bearer("tk-nobody.nothing")
    answers = [await gateway.http.get("/v1/videos", headers=bad) for _ in range(22)]
    assert [answer.status_code for answer in answers] == [401] * 20 + [429] * 2
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert answers[-1].json()["error"]["code"] == "too_many_failed_logins"
    assert (await gateway.http.get("/v1/videos")).status_code == 200
    fresh = bearer(await gateway.key("newcomer"))  # never seen by this gateway
    assert (await gateway.http.get("/v1/videos", headers=fresh)).status_code == 200
    logged = capsys.readouterr().err
    assert logged.count("logins failed") == 2 and "nothing" not in logged


async def test_chat_requests_are_throttled_too(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat:
        await chat.replica(echo)
        body = json.dumps({"model": "m", "messages": [{}]})
        async with httpx.AsyncClient(base_url=chat.base, timeout=30) as client:
            path, bad = "/v1/chat/completions", bearer("tk-nobody.nothing")
            answers = [await client.post(path, content=body, headers=bad) for _ in range(21)]
            assert [answer.status_code for answer in answers] == [401] * 20 + [429]
            assert "retry-after" in answers[-1].headers
            good = await client.post(path, content=body, headers=bearer(chat.gateway.token))
            assert good.status_code == 200


async def test_wrong_secrets_of_every_kind_are_throttled_together(served: Gateway) -> None:
    """A worker's secret, at a heartbeat and at a tunnel; a code of the page; the tokens of links and of signed URLs."""
    video = await served.submit()
    async with httpx.AsyncClient(base_url=served.base, timeout=30) as client:
        body = {"machine": {"gpus": [], "memory_bytes": 8, "free_memory_bytes": 8}, "replicas": []}

        async def tunnel() -> int:
            with pytest.raises(InvalidStatus) as refused:
                async with connect(
                    f"{served.base.replace('http', 'ws')}/workers/w-0/tunnel",
                    additional_headers=bearer("nonsense"),
                ):
                    pass
            return refused.value.response.status_code

        async def statuses() -> list[int]:
            share = {"X-Turnout-Share": f"{video}.a.nonsense"}
            answers = (
                await client.post("/workers/w-0/heartbeat", json=body, headers=bearer("nonsense")),
                await client.post("/v1/session", json={"code": "c" * 43}, headers={"Origin": served.base}),
                await client.get("/v1/shared", headers=share),
                await client.get(f"/v1/videos/{video}/content?token=1-2-{'0' * 64}"),
            )
            return [*(answer.status_code for answer in answers), await tunnel()]

        for _ in range(4):
            assert await statuses() == [401, 401, 404, 404, 401]
        assert await statuses() == [429] * 5
        assert (await client.get("/v1/videos", headers=bearer(served.token))).status_code == 200
