"""Pages of other origins may call where `cors_origins` says so, chat included."""

from pathlib import Path

from tests.conftest import Stores
from tests.gateways import bearer, chatting
from tests.relay.kit import echo

from turnout.gateway.middleware import STANDARD_HEADERS

PAGE = "https://app.example.com"
ASK = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


async def test_a_page_of_an_allowed_origin_may_call(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, cors_origins=f"{PAGE}, http://localhost:3000") as chat:
        await chat.replica(echo)
        async with chat.client() as client:
            for path in ("/v1/chat/completions", "/v1/videos"):
                preflight = await client.options(path, headers={"origin": PAGE, **ASK})
                assert preflight.status_code == 200
                assert preflight.headers["access-control-allow-origin"] == PAGE
                assert dict(STANDARD_HEADERS).items() <= dict(preflight.headers.raw).items()
                assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
                assert (
                    await client.options(path, headers={"origin": "https://e.example", **ASK})
                ).status_code == 400
            asked = {"model": "m", "messages": [{}]}
            for origin, allowed in ((PAGE, PAGE), ("https://e.example", None)):
                headers = {"origin": origin}
                for answer in (
                    await client.post("/v1/chat/completions", json=asked, headers=headers),
                    await client.post("/v1/chat/completions", json={}, headers=headers),  # an error, too
                    await client.get("/v1/videos", headers=headers),
                    await client.get("/v1/videos", headers={**headers, **bearer("tk-no.key")}),
                ):
                    assert answer.headers.get("access-control-allow-origin") == allowed
                    assert "access-control-allow-credentials" not in answer.headers


async def test_without_the_setting_no_page_may_call(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as client:
        for answer in (
            await client.options("/v1/videos", headers={"origin": PAGE, **ASK}),
            await client.get("/v1/videos", headers={"origin": PAGE}),
            await client.post("/v1/chat/completions", json={}, headers={"origin": PAGE}),
        ):
            assert "access-control-allow-origin" not in answer.headers
