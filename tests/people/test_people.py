"""People: they come by an invite, have keys and sessions of their own, and lose everything at once when they are disabled."""

import asyncio
import io
import json
import time
import zipfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.chat.test_chat_limits import ASK, PATH, at_once
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, Gateway, bearer, chatting, picture, running
from tests.pace import patient
from tests.tenants.test_revocation import read_stream, streams_for_ever
from tests.tenants.test_session_routes import THEIRS
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from turnout.chat.conversation_rules import KeptConversation, room_of
from turnout.errors import Unauthorized
from turnout.tasks import object_keys
from turnout.tasks.preset_rules import Preset
from turnout.tasks.task_rules import PersonId, State
from turnout.tenants.caller import person_owner
from turnout.tenants.key_rules import Role

ADA = PersonId("p-0123456789abcdef")


class Visit:
    """A browser of somebody at a gateway: it keeps its cookies, and says where its requests come from."""

    def __init__(self, gateway: Gateway, base: str = "http://gateway") -> None:
        transport = (
            None if base != "http://gateway" else httpx.ASGITransport(gateway.app, raise_app_exceptions=False)
        )
        headers = {"origin": base, "user-agent": "Firefox/150"}
        self.http = httpx.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=30)

    @property
    def cookie(self) -> dict[str, str]:
        return {"cookie": f"turnout_session={self.http.cookies['turnout_session']}"}

    async def come_by(self, invite: dict[str, Any], name: str = "Ada", **more: Any) -> dict[str, Any]:
        answer = await self.http.post(
            "/v1/login/invite", json={"invite": invite["token"], "name": name, **more}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()


async def admin_of(gateway: Gateway) -> dict[str, str]:
    return bearer(await gateway.key("ops", Role.ADMIN))


async def make_invite(gateway: Gateway, admin: dict[str, str], **fields: Any) -> dict[str, Any]:
    made = await gateway.http.post("/v1/invites", json=fields, headers=admin)
    assert made.status_code == 200, made.text
    return made.json()


async def newcomer(
    gateway: Gateway, admin: dict[str, str], name: str = "Ada", **fields: Any
) -> tuple[Visit, str]:
    """Somebody who came by an invite, and her id."""
    visit = Visit(gateway)
    return visit, (await visit.come_by(await make_invite(gateway, admin, **fields), name))["person"]


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_role_that_people_have_not_is_refused_in_words(gateway: Gateway) -> None:
    made = await gateway.http.post("/v1/invites", json={"role": "worker"}, headers=await admin_of(gateway))
    assert made.json()["error"]["message"] == "role must be 'user' or 'admin'."


async def test_an_invites_link_leads_here_from_other_machines(stores: Stores, tmp_path: Path) -> None:
    """`turnout up --host 0.0.0.0` knows itself by an address of its own machine."""
    async with running(stores, tmp_path, public_url="http://127.0.0.1:8000") as gateway:
        invite = await make_invite(gateway, await admin_of(gateway))
        assert invite["link"] == f"http://gateway/#invite={invite['token']}"


async def test_an_invite_lets_in_as_many_as_it_says(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    invite = await make_invite(gateway, admin, uses=2, note="for the class", limits={"videos": 5})
    assert invite["link"] == f"http://gateway/#invite={invite['token']}"
    stored = await gateway.stores.link.client.hget(gateway.stores.link.keys.invites(), invite["id"])
    assert invite["token"].partition(".")[2].encode() not in stored, "only a hash of it is kept"
    looked = await Visit(gateway).http.post("/v1/login/invite/look", json={"invite": invite["token"]})
    assert looked.json() == {
        "object": "invite.seen",
        "name": None,
        "role": "user",
        "expires_at": invite["expires_at"],
    }
    ada, bob, eve = Visit(gateway), Visit(gateway), Visit(gateway)
    shown = [await who.come_by(invite, name) for who, name in ((ada, " Ada "), (bob, "鲍勃"))]
    assert [one["name"] for one in shown] == ["Ada", "鲍勃"]
    assert shown[0]["tenant"] == f"t-{shown[0]['person']}" != shown[1]["tenant"], "each has her own"
    third = await eve.http.post("/v1/login/invite", json={"invite": invite["token"], "name": "Eve"})
    assert refused(third) == (401, "invalid_invite") and "set-cookie" not in third.headers
    (listed,) = (await gateway.http.get("/v1/invites", headers=admin)).json()["data"]
    assert (listed["used"], listed["uses"], listed["note"]) == (2, 2, "for the class")
    assert listed["token"] is None and listed["link"] is None
    people = (await gateway.http.get("/v1/people", headers=admin)).json()
    assert {one["name"] for one in people["data"]} == {"Ada", "鲍勃"} and not people["has_more"]
    assert (await gateway.http.get("/v1/people", headers=admin, params={"search": "ADA"})).json()["data"][0][
        "limits"
    ] == {
        "videos": 5,
        "chats": None,
    }


async def test_of_many_who_use_an_invite_at_once_as_many_come_in_as_it_says(gateway: Gateway) -> None:
    invite = await make_invite(gateway, await admin_of(gateway), uses=3)
    body = {"invite": invite["token"], "name": "Ada"}
    answers = await asyncio.gather(
        *(Visit(gateway).http.post("/v1/login/invite", json=body) for _ in range(12))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [401] * 9
    assert len(await gateway.stores.tenants.people.page(None, 100)) == 3


async def test_what_is_no_invite_lets_nobody_in(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    invite, gone = await make_invite(gateway, admin), await make_invite(gateway, admin)
    assert (await gateway.http.delete(f"/v1/invites/{gone['id']}", headers=admin)).status_code == 200
    assert (await gateway.http.delete(f"/v1/invites/{gone['id']}", headers=admin)).status_code == 404
    old = await make_invite(gateway, admin)
    stored = await gateway.stores.tenants.invites.find(old["id"])
    assert stored is not None
    await gateway.stores.tenants.invites.add(replace(stored[0], expires_at=time.time() - 1))
    visit, name = Visit(gateway), {"name": "Ada"}
    for token in (gone["token"], old["token"], invite["id"], f"{invite['id']}.guess", "i-0.x", "."):
        for path, body in (("/look", {}), ("", name)):
            answer = await visit.http.post(f"/v1/login/invite{path}", json={"invite": token, **body})
            assert refused(answer) == (401, "invalid_invite")
    for body, problem in (
        ({}, (400, "missing_name")),
        ({"name": "  "}, (400, "invalid_value")),
        ({"name": "x" * 101}, (400, "invalid_value")),
        ({**name, "email": "not one"}, (400, "invalid_value")),
        ({**name, "role": "admin"}, (400, "unknown_parameter")),
    ):
        answer = await visit.http.post("/v1/login/invite", json={"invite": invite["token"], **body})
        assert refused(answer) == problem
    elsewhere = await visit.http.post(
        "/v1/login/invite", json={"invite": invite["token"], **name}, headers=THEIRS
    )
    assert refused(elsewhere) == (403, "wrong_origin")
    assert await visit.come_by(invite), "nothing of all that has used it"


async def test_only_admins_invite_and_see_people(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    _, ada = await newcomer(gateway, admin)
    for method, path in (
        ("POST", "/v1/invites"),
        ("GET", "/v1/invites"),
        ("DELETE", "/v1/invites/i-1"),
        ("GET", "/v1/people"),
        ("GET", f"/v1/people/{ada}"),
        ("PATCH", f"/v1/people/{ada}"),
        ("DELETE", f"/v1/people/{ada}"),
    ):
        assert (await gateway.http.request(method, path, json={})).status_code == 403, path
    for body, param in (({"uses": 0}, "uses"), ({"role": "worker"}, "role"), ({"tenant": "a b"}, "tenant")):
        answer = await gateway.http.post("/v1/invites", json=body, headers=admin)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    unknown = await gateway.http.post("/v1/invites", json={"person": "p-0000000000000000"}, headers=admin)
    assert refused(unknown) == (404, "person_not_found")


async def test_people_see_their_own_work_alone_or_share_a_tenants(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    (ada, ada_id), (bob, _) = [await newcomer(gateway, admin, tenant="design") for _ in range(2)]
    eve, _ = await newcomer(gateway, admin)
    made = (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).json()
    assert (await gateway.task(made["id"])).person == ada_id
    assert [v["id"] for v in (await bob.http.get("/v1/videos")).json()["data"]] == [made["id"]]
    assert (await eve.http.get("/v1/videos")).json()["data"] == []
    assert (await eve.http.get(f"/v1/videos/{made['id']}")).status_code == 404


async def test_a_person_makes_and_revokes_keys_of_her_own(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    ada, ada_id = await newcomer(gateway, admin)
    bob, _ = await newcomer(gateway, admin, "Bob")
    made = (await ada.http.post("/v1/account/keys", json={"name": "ci", "expires_in_s": 3600})).json()
    assert made["token"].startswith(f"tk-{ada_id}-") and made["role"] == "user"
    key = bearer(made["token"])
    assert (await gateway.http.get("/v1/session", headers=key)).json()["person"] == ada_id
    assert (await gateway.http.get("/v1/account", headers=key)).json()["name"] == "Ada"
    (listed,) = (await ada.http.get("/v1/account/keys")).json()["data"]
    assert (listed["name"], listed["token"]) == ("ci", None)
    assert (await bob.http.get("/v1/account/keys")).json()["data"] == []
    assert refused(await bob.http.delete(f"/v1/account/keys/{made['id']}")) == (404, "key_not_found")
    assert refused(await ada.http.delete(f"/v1/account/keys/{ada_id}")) == (404, "key_not_found")
    assert refused(await ada.http.post("/v1/account/keys", json={"role": "admin"})) == (
        403,
        "role_not_allowed",
    )
    assert refused(await ada.http.post("/v1/account/keys", json={"role": "worker"}))[0] == 400
    assert (await ada.http.delete(f"/v1/account/keys/{made['id']}")).status_code == 200
    assert refused(await gateway.http.get("/v1/account", headers=key)) == (401, "invalid_api_key")
    assert refused(await gateway.http.get("/v1/account/keys")) == (403, "person_needed"), "a key is nobody"


async def test_a_key_of_a_person_opens_no_way_in(gateway: Gateway) -> None:
    """Nor does a session that was opened with the key: it made a code for the person herself, who may do more."""
    admin = await admin_of(gateway)
    boss, boss_id = await newcomer(gateway, admin, role="admin")
    (plain, strong) = [
        (await boss.http.post("/v1/account/keys", json={"role": role})).json()["token"]
        for role in ("user", "admin")
    ]
    for token, ways in (
        (plain, ["/v1/session/codes", "/v1/account/keys"]),
        (strong, ["/v1/session/codes", "/v1/account/keys", "/v1/keys", "/v1/keys/x/rotate", "/v1/invites"]),
    ):
        thief = Visit(gateway)
        opened = (await thief.http.post("/v1/session", json={"key": token})).json()
        assert opened["person"] == boss_id
        for way in ways:
            assert refused(await thief.http.post(way, json={})) == (403, "session_needed"), way
            by_key = await gateway.http.post(way, json={}, headers=bearer(token))
            assert refused(by_key) == (403, "session_needed"), way
        deleted = await thief.http.delete("/v1/account", params={"everything": True})
        assert refused(deleted) == (403, "session_needed")
    assert (await boss.http.post("/v1/session/codes")).status_code == 200
    assert (await boss.http.post("/v1/keys", json={})).status_code == 200


async def test_what_is_a_persons_is_replaced_by_no_admin(gateway: Gateway) -> None:
    """The new key would outlive her."""
    admin = await admin_of(gateway)
    ada, ada_id = await newcomer(gateway, admin)
    key = (await ada.http.post("/v1/account/keys", json={})).json()["id"]
    session = (await ada.http.get("/v1/account/sessions")).json()["data"][0]["id"]
    for name in (ada_id, key, session):
        rotated = await gateway.http.post(f"/v1/keys/{name}/rotate", json={}, headers=admin)
        assert refused(rotated) == (404, "key_not_found"), name
    assert (await gateway.http.delete(f"/v1/keys/{key}", headers=admin)).status_code == 200, "nor kept"


async def test_a_person_gets_to_another_browser_by_a_link_of_her_own_and_ends_all_others(
    gateway: Gateway,
) -> None:
    admin = await admin_of(gateway)
    ada, ada_id = await newcomer(gateway, admin)
    code = (await ada.http.post("/v1/session/codes")).json()
    assert 890 < code["expires_at"] - time.time() <= 900
    phone = Visit(gateway)
    assert (await phone.http.post("/v1/session", json={"code": code["code"]})).json()["person"] == ada_id
    both = (await ada.http.get("/v1/account/sessions")).json()["data"]
    assert [one["current"] for one in both] == [False, True] and both[0]["agent"] == "Firefox/150"
    assert (await phone.http.delete("/v1/account/sessions")).json()["ended"] == 1
    assert (await ada.http.get("/v1/videos")).status_code == 401
    (left,) = (await phone.http.get("/v1/account/sessions")).json()["data"]
    bob, _ = await newcomer(gateway, admin, "Bob")
    assert refused(await bob.http.delete(f"/v1/account/sessions/{left['id']}")) == (404, "session_not_found")
    assert (await phone.http.delete(f"/v1/account/sessions/{left['id']}")).json()["ended"] == 1
    assert (await phone.http.get("/v1/session")).status_code == 204


async def test_an_admin_brings_a_person_back_who_lost_her_browser(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    ada, ada_id = await newcomer(gateway, admin)
    made = (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).json()
    invite = await make_invite(gateway, admin, person=ada_id, uses=5)
    assert invite["uses"] == 1
    other = Visit(gateway)
    seen = (await other.http.post("/v1/login/invite/look", json={"invite": invite["token"]})).json()
    assert seen["name"] == "Ada"
    back = await other.http.post("/v1/login/invite", json={"invite": invite["token"]})
    assert back.json()["person"] == ada_id
    assert [v["id"] for v in (await other.http.get("/v1/videos")).json()["data"]] == [made["id"]]
    again = await Visit(gateway).http.post("/v1/login/invite", json={"invite": invite["token"]})
    assert refused(again) == (401, "invalid_invite")


async def test_what_a_disabled_admin_has_made_lets_nobody_in(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    boss, boss_id = await newcomer(gateway, admin, role="admin")
    invite = (await boss.http.post("/v1/invites", json={})).json()
    own = await boss.http.patch(f"/v1/people/{boss_id}", json={"disabled": True})
    assert refused(own) == (409, "own_person")
    assert refused(await boss.http.delete(f"/v1/people/{boss_id}")) == (409, "own_person")
    assert refused(await boss.http.patch(f"/v1/people/{boss_id}", json={"role": "user"})) == (
        409,
        "own_person",
    )
    await gateway.http.patch(f"/v1/people/{boss_id}", json={"disabled": True}, headers=admin)
    answer = await Visit(gateway).http.post(
        "/v1/login/invite", json={"invite": invite["token"], "name": "Eve"}
    )
    assert refused(answer) == (401, "invalid_invite")


@pytest.fixture
async def chat(stores: Stores, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(stores, tmp_path) as made:
        yield made


async def test_a_disabled_person_loses_sessions_keys_streams_and_tasks_at_every_gateway(
    chat: Chat, stores: Stores, tmp_path: Path
) -> None:
    """The gateway that she uses hears of it from the store alone: another one disables her."""
    gateway = chat.gateway
    admin = await admin_of(gateway)
    (ada, ada_id), (bob, _) = [await newcomer(gateway, admin, tenant="design") for _ in range(2)]
    key = bearer((await ada.http.post("/v1/account/keys", json={})).json()["token"])
    waiting, running_now = [
        (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).json()["id"] for _ in "ab"
    ]
    bobs = (await bob.http.post("/v1/videos", json={"prompt": "a cube"})).json()["id"]
    claimed = await gateway.gang.claim()
    page, began = {**ada.cookie, "origin": chat.base}, asyncio.Event()
    await chat.replica(streams_for_ever)
    async with (
        running(stores, tmp_path) as other,
        connect(f"{chat.base.replace('http', 'ws')}/v1/videos/ws", additional_headers=page) as socket,
        asyncio.TaskGroup() as group,
    ):
        await socket.recv()
        reading = group.create_task(read_stream(chat, began, page))
        await began.wait()
        await other.http.patch(f"/v1/people/{ada_id}", json={"disabled": True}, headers=admin)
        async with asyncio.timeout(patient(20)):
            last = (await reading).strip().splitlines()[-1]
            with pytest.raises(ConnectionClosed):
                while True:
                    await socket.recv()
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "invalid_api_key"
        assert socket.close_code == 4401
        gateway.inside.keys._kept.clear()  # within 5 s
        elsewhere = Visit(other)
        elsewhere.http.cookies.update(ada.http.cookies)
        for visit in (ada, elsewhere):
            assert (await visit.http.get("/v1/videos")).status_code == 401
            assert (await visit.http.get("/v1/videos", headers=key)).status_code == 401
        states = {v: (await gateway.task(v)).state for v in (waiting, running_now, bobs)}
        assert (
            states[waiting] is states[running_now] is State.CANCELLED and states[bobs] is not State.CANCELLED
        )
        assert claimed.id in (waiting, running_now, bobs)
        await other.http.patch(f"/v1/people/{ada_id}", json={"disabled": False}, headers=admin)
        assert (await other.http.get("/v1/videos", headers=key)).status_code == 200, "as she was"
    await wait_until(lambda: chat.at_rest, "nothing to be held")


@pytest.mark.parametrize("removed", [False, True])
async def test_what_was_just_being_asked_for_goes_with_her(
    stores: Stores, tmp_path: Path, removed: bool
) -> None:
    """Her video waited for its picture while all of hers was ended, and was accepted afterwards."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow_site(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await go_on.wait()
        body = picture()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(slow_site, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, running(stores, tmp_path, allow_private_urls=True) as gateway:
        admin = await admin_of(gateway)
        ada, ada_id = await newcomer(gateway, admin)
        body = {"prompt": "a ball", "model": "wan-tiny-ti2v", "image_url": url}
        asking = asyncio.create_task(ada.http.post("/v1/videos", json=body))
        await asked.wait()
        if removed:
            await gateway.http.delete(f"/v1/people/{ada_id}", headers=admin)
        else:
            await gateway.http.patch(f"/v1/people/{ada_id}", json={"disabled": True}, headers=admin)
        go_on.set()
        assert refused(await asking) == (401, "invalid_api_key")
        link = stores.link
        left = [name.decode() async for name in link.client.scan_iter(link.keys.pattern())]
        assert [name for name in left if ":task:" in name] == []
        assert [blob.key async for blob in gateway.blobs.list("tasks/")] == []
        tenants, owner = stores.tenants, person_owner(PersonId(ada_id))
        kept = KeptConversation("c", 1, "Talk", None, 1.0, 1.0, 0, "")
        with pytest.raises(Unauthorized):
            await tenants.conversations.keep(owner, kept, b"{}", "words", room_of(guest=False, most=9))
        with pytest.raises(Unauthorized):
            await tenants.presets.put(owner, "mine", Preset(steps=4))
        assert [blob.key async for blob in gateway.blobs.list("conversations/")] == []


async def test_another_role_counts_at_once_and_ends_what_was_open_under_the_old_one(chat: Chat) -> None:
    gateway, admin = chat.gateway, await admin_of(chat.gateway)
    boss, boss_id = await newcomer(gateway, admin, role="admin")
    assert (await boss.http.get("/v1/people")).status_code == 200
    page = {**boss.cookie, "origin": chat.base}
    async with connect(f"{chat.base.replace('http', 'ws')}/v1/videos/ws", additional_headers=page) as socket:
        await socket.recv()
        changed = await gateway.http.patch(f"/v1/people/{boss_id}", json={"role": "user"}, headers=admin)
        assert changed.json()["role"] == "user"
        async with asyncio.timeout(patient(20)):
            with pytest.raises(ConnectionClosed):
                await socket.recv()
    assert (await boss.http.get("/v1/people")).status_code == 403
    assert (await boss.http.get("/v1/videos")).status_code == 200


async def test_a_person_asks_for_no_more_in_a_day_than_she_may(chat: Chat) -> None:
    gateway, admin = chat.gateway, await admin_of(chat.gateway)
    ada, ada_id = await newcomer(gateway, admin, limits={"videos": 2, "chats": 2})
    key = bearer((await ada.http.post("/v1/account/keys", json={})).json()["token"])
    await chat.replica(at_once)
    wrong = await ada.http.post("/v1/videos", json={"prompt": "a ball", "model": "nothing"})
    assert wrong.status_code == 404
    asked = [
        await ada.http.post("/v1/videos", json={"prompt": "a ball"}, headers={"idempotency-key": k})
        for k in "abbc"
    ]
    assert [one.status_code for one in asked] == [200, 200, 200, 429], "the same one again counts once"
    assert refused(asked[3])[1] == "daily_limit" and 0 < int(asked[3].headers["retry-after"]) <= 86_400
    pictured = await ada.http.post(
        "/v1/videos", json={"prompt": "a ball", "webhook_url": "https://example.com/"}
    )
    assert refused(pictured) == (429, "daily_limit"), "before any address is called"
    async with httpx.AsyncClient(base_url=chat.base, headers=key, timeout=30) as http:
        assert (await http.post(PATH, json={**ASK, "model": "nothing"})).status_code == 404
        answers = [await http.post(PATH, json=ASK) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    account = (await ada.http.get("/v1/account")).json()
    assert account["videos_today"] == account["chats_today"] == {"asked": 2, "most": 2}
    await gateway.http.patch(f"/v1/people/{ada_id}", json={"limits": {"videos": 3}}, headers=admin)
    assert (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).status_code == 200
    assert (await ada.http.get("/v1/account")).json()["chats_today"] is None


async def test_a_person_who_is_removed_leaves_nothing(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    ada, ada_id = await newcomer(gateway, admin)
    bob, _ = await newcomer(gateway, admin, "Bob")
    key = bearer((await ada.http.post("/v1/account/keys", json={})).json()["token"])
    done, waits = [
        (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).json()["id"] for _ in range(2)
    ]
    task = await gateway.gang.finish(await gateway.gang.claim())
    assert task.id == done
    shared = (await ada.http.post(f"/v1/videos/{done}/shares", json={})).json()
    bobs = (await bob.http.post("/v1/videos", json={"prompt": "a cube"})).json()["id"]
    answer = await gateway.http.delete(f"/v1/people/{ada_id}", headers=admin)
    assert answer.json() == {"id": ada_id, "object": "person.deleted", "deleted": True}
    for headers in (key, {}):
        assert (await ada.http.get("/v1/videos", headers=headers)).status_code == 401
    opened = await gateway.http.get("/v1/shared", headers={"x-turnout-share": shared["token"]})
    assert refused(opened) == (404, "share_not_found")
    link = gateway.stores.link
    left = [name.decode() async for name in link.client.scan_iter(link.keys.pattern())]
    figures = (":usage:", ":counts:", ":rate:")  # numbers alone
    hers = [name for name in left if any(part in name for part in (done, waits, ada_id))]
    assert [name for name in hers if not any(figure in name for figure in figures)] == []
    assert [blob.key async for blob in gateway.blobs.list(f"tasks/{done}")] == []
    assert (await bob.http.get(f"/v1/videos/{bobs}")).status_code == 200
    assert refused(await gateway.http.get(f"/v1/people/{ada_id}", headers=admin)) == (404, "person_not_found")


async def test_all_that_is_done_to_people_is_audited_by_ids_alone(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    invite = await make_invite(gateway, admin, note="private")
    ada = Visit(gateway)
    ada_id = (await ada.come_by(invite, "Ada Lovelace", email="ada@example.com"))["person"]
    await ada.http.patch("/v1/account", json={"name": "Ada King"})
    made = (await ada.http.post("/v1/account/keys", json={})).json()
    await ada.http.delete(f"/v1/account/keys/{made['id']}")
    for body in ({"limits": {"videos": 7}}, {"disabled": True}, {"disabled": False}):
        await gateway.http.patch(f"/v1/people/{ada_id}", json=body, headers=admin)
    await gateway.http.delete(f"/v1/invites/{invite['id']}", headers=admin)
    await gateway.http.delete(f"/v1/people/{ada_id}", headers=admin)
    answer = await gateway.http.get("/v1/audit", headers=admin)
    entries = answer.json()["data"][::-1]
    assert [entry["action"] for entry in entries] == [
        "invite.created",
        "person.joined",
        "session.opened",
        "key.created",
        "key.revoked",
        "person.changed",
        "person.disabled",
        "person.enabled",
        "invite.revoked",
        "person.removed",
    ]
    assert entries[1]["target"] == ada_id and entries[3]["detail"]["person"] == ada_id
    assert entries[5]["detail"]["videos_a_day"] == "7"
    assert not any(word in answer.text for word in ("Ada", "Lovelace", "King", "ada@", "private"))


async def test_what_was_shown_to_nobody_is_not_taken_along(gateway: Gateway) -> None:
    """A result that the operator's check has not let through lies beside the task until then, and the archive had it."""
    ada, _ = await newcomer(gateway, await admin_of(gateway))
    video = (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).json()["id"]
    task = await gateway.gang.claim()
    for name in ("video.mp4", "preview-1.webp"):
        await gateway.blobs.put(f"{object_keys.of_attempt(task)}{name}", b"unseen", "video/mp4")
    await gateway.gang.preview(task, 2, b"seen")
    sent = await ada.http.get("/v1/account/export")
    with zipfile.ZipFile(io.BytesIO(sent.content)) as saved:
        files = [name.rpartition("-")[2] for name in saved.namelist() if f"/{video}/1-" in name]
        assert files == ["2.webp"]


async def test_a_person_takes_everything_along_and_deletes_it(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    (ada, ada_id), (bob, _) = [
        await newcomer(gateway, admin, name, tenant="design") for name in ("Ada", "Bob")
    ]
    key = bearer((await ada.http.post("/v1/account/keys", json={"name": "ci"})).json()["token"])
    bobs = (await bob.http.post("/v1/videos", json={"prompt": "a cube"})).json()["id"]
    await gateway.gang.finish(await gateway.gang.claim(), b"bob" * 10)
    hers = (await ada.http.post("/v1/videos", json={"prompt": "a ball"})).json()["id"]
    large = b"ada" * 300_000
    await gateway.gang.finish(await gateway.gang.claim(), large)
    sent = await ada.http.get("/v1/account/export")
    assert sent.headers["content-type"] == "application/zip" and ada_id in sent.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(sent.content)) as saved:
        assert saved.testzip() is None
        assert {name.split("/")[1] for name in saved.namelist() if name.startswith("videos/")} == {hers}
        (video,) = [name for name in saved.namelist() if name.endswith("video.mp4")]
        assert saved.read(video) == large
        assert json.loads(saved.read(f"videos/{hers}/video.json"))["prompt"] == "a ball"
        account = json.loads(saved.read("account.json"))
    assert account["person"]["name"] == "Ada" and account["keys"][0]["name"] == "ci"
    assert "token" not in account["keys"][0] and len(account["sessions"]) == 1
    assert refused(await ada.http.delete("/v1/account")) == (400, "invalid_value")
    everything = {"everything": True}
    by_key = await gateway.http.delete("/v1/account", params=everything, headers=key)
    assert refused(by_key) == (403, "session_needed"), "a key that was found must not do it"
    assert refused(await gateway.http.post("/v1/session/codes", headers=key)) == (403, "session_needed")
    assert refused(await gateway.http.post("/v1/account/keys", json={}, headers=key)) == (
        403,
        "session_needed",
    )
    assert refused(await gateway.http.delete("/v1/account", params=everything)) == (403, "person_needed")
    gone = await ada.http.delete("/v1/account", params=everything)
    assert gone.json()["id"] == ada_id and "turnout_session" not in ada.http.cookies
    assert [v["id"] for v in (await bob.http.get("/v1/videos")).json()["data"]] == [bobs], (
        "his alone are left"
    )
    assert (await gateway.http.get("/v1/account", headers=key)).status_code == 401
    audit = (await gateway.http.get("/v1/audit", headers=admin)).json()["data"]
    assert audit[0]["action"] == "person.removed" and "Ada" not in json.dumps(audit)
