"""Open mode: no key is needed on this machine, and no web page gets in."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, config_for, running

from turnout.errors import Forbidden, Misconfigured
from turnout.run.listening import check_open_mode
from turnout.tenants.key_rules import Role
from turnout.tenants.open_access import OpenAccess

PAGE = "https://app.example.com"


@pytest.fixture
async def opened(stores: Stores, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running(stores, tmp_path) as gateway:
        gateway.inside.keys._open_access = OpenAccess(await gateway.key(role=Role.ADMIN), [PAGE])
        del gateway.http.headers["authorization"]
        gateway.http.base_url = httpx.URL("http://127.0.0.1:8000")
        yield gateway


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-anything"}, {"host": "localhost:8000"}])
async def test_no_key_is_needed(opened: Gateway, headers: dict[str, str]) -> None:
    assert (await opened.http.get("/v1/models", headers=headers)).status_code == 200
    assert (await opened.http.get("/workers", headers=headers)).status_code == 200


async def test_a_key_of_ours_still_counts(opened: Gateway) -> None:
    user = {"authorization": f"Bearer {await opened.key()}"}
    assert (await opened.http.get("/workers", headers=user)).status_code == 403
    wrong = {"authorization": "Bearer tk-nobody.nothing"}
    assert (await opened.http.get("/v1/models", headers=wrong)).status_code == 401


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example.com"}, "wrong_host"),  # a name that leads to loopback
        ({"host": "127.0.0.1.evil.example.com:8000"}, "wrong_host"),
        ({"host": "10.0.0.7:8000"}, "wrong_host"),
        ({"origin": "https://evil.example.com"}, "wrong_origin"),
        ({"origin": "http://127.0.0.1:3000"}, "wrong_origin"),  # another program's page
        ({"origin": "null"}, "wrong_origin"),
        ({"sec-fetch-site": "cross-site"}, "wrong_origin"),
    ],
)
async def test_no_web_page_gets_in(opened: Gateway, headers: dict[str, str], code: str) -> None:
    for method, path in (("GET", "/v1/videos"), ("POST", "/generate"), ("DELETE", "/v1/models/wan-tiny-t2v")):
        answer = await opened.http.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)


async def test_our_own_page_and_allowed_origins_get_in(opened: Gateway) -> None:
    for origin in ("http://127.0.0.1:8000", PAGE):
        assert (await opened.http.get("/v1/models", headers={"origin": origin})).status_code == 200


def test_chat_and_sockets_ask_the_same_question() -> None:
    """All three ways in call `KeyRing.authorization`, which asks this."""
    open_access = OpenAccess("tk-a.b", [])
    assert open_access.authorization([(b"host", b"[::1]:80")]) == b"Bearer tk-a.b"
    with pytest.raises(Forbidden):
        open_access.authorization([(b"host", b"rebound.example.com")])
    with pytest.raises(Forbidden):
        open_access.authorization([])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gpu1"])
def test_open_mode_is_refused_beyond_loopback(tmp_path: Path, host: str) -> None:
    config = config_for(tmp_path).with_settings(no_auth=True)
    with pytest.raises(Misconfigured, match="is not loopback"):
        check_open_mode(config.gateway, host)
    for here in ("127.0.0.1", "::1", "localhost"):
        check_open_mode(config.gateway, here)


def test_open_mode_is_refused_with_every_origin_allowed(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="would let any web page in"):
        check_open_mode(config_for(tmp_path).with_settings(cors_origins="*").gateway, "127.0.0.1")
