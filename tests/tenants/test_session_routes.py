"""Sessions: opened once by a code, good for our own page alone, ended everywhere at once."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import websockets
from tests.chat.test_chat_limits import at_once
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, chatting, running
from tests.pace import patient

from turnout.errors import Forbidden
from turnout.tenants.key_rules import Role
from turnout.tenants.session_cookie import cookie_authorization

OURS = {"origin": "http://gateway"}
THEIRS = {"origin": "http://gateway:9000"}


async def make_code(gateway: Gateway, token: str | None = None) -> str:
    admin = token or await gateway.key("ops", Role.ADMIN)
    made = await gateway.http.post("/v1/session/codes", headers=bearer(admin))
    assert made.status_code == 200, made.text
    return str(made.json()["code"])


async def log_in(gateway: Gateway, token: str | None = None) -> None:
    """From now on the client has the cookie, and no key."""
    code = await make_code(gateway, token)
    gateway.http.headers.pop("authorization", None)
    answer = await gateway.http.post("/v1/session", json={"code": code}, headers=OURS)
    assert answer.status_code == 200, answer.text


async def test_a_code_opens_one_session_that_acts_as_the_key_that_made_it(gateway: Gateway) -> None:
    code = await make_code(gateway)
    del gateway.http.headers["authorization"]
    opened = await gateway.http.post("/v1/session", json={"code": code}, headers=OURS)
    cookie = opened.headers["set-cookie"]
    assert cookie.startswith("turnout_session=") and "Secure" not in cookie
    assert "; HttpOnly; SameSite=Strict; Path=/;" in cookie
    shown = (await gateway.http.get("/v1/session")).json()
    assert (shown["tenant"], shown["role"]) == ("ops", "admin") and shown["expires_at"] > 0
    assert (await gateway.http.get("/v1/keys")).status_code == 200
    again = await gateway.http.post("/v1/session", json={"code": code}, headers=OURS)
    assert (again.status_code, again.json()["error"]["code"]) == (401, "invalid_code")


async def test_a_key_opens_a_session_that_ends_with_it(gateway: Gateway) -> None:
    user = gateway.token
    del gateway.http.headers["authorization"]
    opened = await gateway.http.post("/v1/session", json={"key": user}, headers=OURS)
    assert opened.json()["tenant"] == "acme" and "Max-Age" not in opened.headers["set-cookie"]
    made = await gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=OURS)
    assert made.status_code == 200
    kept = await gateway.http.post("/v1/session", json={"key": user, "remember": True}, headers=OURS)
    assert "; Max-Age=2592000" in kept.headers["set-cookie"]
    await gateway.stores.tenants.keys.revoke(user[3:].partition(".")[0])
    gateway.inside.keys._kept.clear()  # what was known of it lapses in a moment
    assert (await gateway.http.get("/v1/videos")).status_code == 401
    again = await gateway.http.post("/v1/session", json={"key": user}, headers=OURS)
    assert (again.status_code, again.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_a_session_is_opened_by_one_thing_from_our_own_page_for_those_who_may_ask(
    gateway: Gateway,
) -> None:
    worker = await gateway.key("ops", Role.WORKER)
    del gateway.http.headers["authorization"]
    for body, headers, refusal in (
        ({"key": gateway.token}, THEIRS, (403, "wrong_origin")),
        ({"key": worker}, OURS, (403, "role_not_allowed")),
        ({"key": "tk-nobody.nothing"}, OURS, (401, "invalid_api_key")),
        ({"key": "\u00fc"}, OURS, (401, "invalid_api_key")),
        ({"key": gateway.token, "code": "c"}, OURS, (400, "invalid_value")),
        ({}, OURS, (400, "invalid_value")),
    ):
        answer = await gateway.http.post("/v1/session", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == refusal
        assert "set-cookie" not in answer.headers


async def test_over_https_the_cookie_is_bound_to_this_host(gateway: Gateway) -> None:
    code = await make_code(gateway)
    answer = await gateway.http.post(
        "/v1/session",
        json={"code": code},
        headers={"origin": "https://videos.example", "host": "videos.example"},
    )
    assert answer.headers["set-cookie"].startswith("__Host-turnout_session=")
    assert answer.headers["set-cookie"].endswith("; Secure")


async def test_whoever_may_ask_for_something_makes_codes(gateway: Gateway) -> None:
    await log_in(gateway, gateway.token)
    shown = (await gateway.http.get("/v1/session")).json()
    assert (shown["tenant"], shown["role"]) == ("acme", "user")
    worker = bearer(await gateway.key("ops", Role.WORKER))
    assert (await gateway.http.post("/v1/session/codes", headers=worker)).status_code == 403


async def test_nobody_is_logged_in_without_credentials_and_a_bad_key_is_told(gateway: Gateway) -> None:
    del gateway.http.headers["authorization"]
    assert (await gateway.http.get("/v1/session")).status_code == 204
    assert (await gateway.http.get("/v1/session", headers=bearer("tk-a.b"))).status_code == 401
    stale = {"cookie": "turnout_session=tk-s-00.00"}
    assert (await gateway.http.get("/v1/session", headers=stale)).status_code == 204
    assert (await gateway.http.get("/v1/videos", headers=stale)).status_code == 401


@pytest.mark.parametrize(
    "headers", [THEIRS, {}, {"origin": "null"}, OURS | {"sec-fetch-site": "cross-site"}], ids=str
)
async def test_another_origin_cannot_act_on_the_session(gateway: Gateway, headers: Mapping[str, str]) -> None:
    await log_in(gateway)
    refused = await gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_origin")
    assert (await gateway.http.get("/v1/videos")).json()["data"] == []
    ours = await gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=OURS)
    assert ours.status_code == 200


async def test_a_key_in_the_header_is_judged_alone(gateway: Gateway) -> None:
    user = gateway.token
    await log_in(gateway)
    shown = await gateway.http.get("/v1/session", headers=bearer(user))
    assert (shown.json()["tenant"], shown.json()["role"]) == ("acme", "user")


async def test_logging_out_ends_the_session_for_whoever_has_the_cookie(gateway: Gateway) -> None:
    await log_in(gateway)
    cookie = {"cookie": f"turnout_session={gateway.http.cookies['turnout_session']}"}
    answer = await gateway.http.delete("/v1/session", headers=OURS)
    assert answer.status_code == 204 and all("Max-Age=0" in c for c in answer.headers.get_list("set-cookie"))
    assert (await gateway.http.get("/v1/videos", headers=cookie)).status_code == 401
    assert (await gateway.http.delete("/v1/session", headers=OURS)).status_code == 204


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://gateway:8080"},
        {"origin": "null"},
        {**OURS, "sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_code_logs_in_from_our_own_page_alone(gateway: Gateway, headers: dict[str, str]) -> None:
    code = await make_code(gateway, await gateway.key("ops", Role.ADMIN))
    refused = await gateway.http.post("/v1/session", json={"code": code}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_origin")
    assert (await gateway.http.post("/v1/session", json={"code": code}, headers=OURS)).status_code == 200


async def test_who_opens_a_session_stands_in_the_audit_log(gateway: Gateway) -> None:
    admin = await gateway.key("ops", Role.ADMIN)
    await log_in(gateway, admin)
    entries = (await gateway.http.get("/v1/audit")).json()["data"]
    assert [e["action"] for e in entries].count("session.opened") == 1
    opened = next(e for e in entries if e["action"] == "session.opened")
    assert opened["actor"] == admin[3:].partition(".")[0] and opened["target"].startswith("s")


async def test_a_session_ends_with_its_key(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path) as one, running(stores, tmp_path) as other:
        admin = await one.key("ops", Role.ADMIN)
        await log_in(one, admin)
        cookie = {"cookie": f"turnout_session={one.http.cookies['turnout_session']}"}
        await one.stores.tenants.keys.revoke(admin[3:].partition(".")[0])
        other.http.headers.pop("authorization")
        assert (await other.http.get("/v1/videos", headers=cookie)).status_code == 401


async def test_a_code_and_a_session_of_an_expired_key_are_worth_nothing(gateway: Gateway) -> None:
    admin = await gateway.key("ops", Role.ADMIN)
    code = await make_code(gateway, admin)
    await log_in(gateway, admin)
    parent = await gateway.stores.tenants.keys.find(admin[3:].partition(".")[0])
    assert parent is not None and (await gateway.http.get("/v1/keys")).status_code == 200
    await gateway.stores.tenants.keys.add(replace(parent, expires_at=gateway.inside.now()))
    refused = await gateway.http.post("/v1/session", json={"code": code}, headers=OURS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_code")
    gateway.inside.keys._kept.clear()  # what was known of it lapses in a moment
    assert (await gateway.http.get("/v1/keys")).status_code == 401


async def test_events_and_chat_take_the_session_from_our_own_page_alone(
    stores: Stores, tmp_path: Path
) -> None:
    async with chatting(stores, tmp_path) as chat:
        await log_in(chat.gateway)
        host = chat.base.removeprefix("http://")
        cookie = f"turnout_session={chat.gateway.http.cookies['turnout_session']}"
        await chat.replica(at_once)
        ours, theirs = (
            {"cookie": cookie, "origin": chat.base},
            {"cookie": cookie, "origin": "http://127.0.0.1:1"},
        )
        async with httpx.AsyncClient(base_url=chat.base, timeout=30) as http:
            body = {"model": "m", "messages": [{"role": "user", "content": "x" * 70_000}]}
            for sent in (body, {**body, "messages": [{}]}):
                refused = await http.post("/v1/chat/completions", json=sent, headers=theirs)
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_origin")
                assert (await http.post("/v1/chat/completions", json=sent, headers=ours)).status_code == 200
        with pytest.raises(websockets.InvalidStatus) as refusal:
            await websockets.connect(f"ws://{host}/v1/videos/ws", additional_headers=theirs)
        assert refusal.value.response.status_code == 403
        async with websockets.connect(f"ws://{host}/v1/videos/ws", additional_headers=ours) as socket:
            await asyncio.wait_for(socket.recv(), patient(10))  # it watches
            made = await chat.gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=OURS)
            assert made.status_code == 200
            told = json.loads(await asyncio.wait_for(socket.recv(), patient(10)))
            assert told["video"] == made.json()["id"]


def test_reading_needs_no_origin_and_writing_does() -> None:
    cookie = (b"cookie", b"a=b; turnout_session=tk-s-1.2; c=d")
    assert cookie_authorization("GET", [cookie]) == b"Bearer tk-s-1.2"
    assert cookie_authorization("GET", [(b"cookie", b"other=1")]) is None
    same = (b"sec-fetch-site", b"same-origin")
    assert cookie_authorization("POST", [cookie, same]) == b"Bearer tk-s-1.2"
    for headers in ([cookie], [cookie, (b"sec-fetch-site", b"none")]):
        with pytest.raises(Forbidden):
            cookie_authorization("POST", headers)
    with pytest.raises(Forbidden):
        cookie_authorization("GET", [cookie, (b"sec-fetch-site", b"same-site")])
