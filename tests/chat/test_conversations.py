"""Conversations that are kept on the server: whose they are, how they change, and when they are gone."""

import asyncio
import base64
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, picture, running
from tests.people.test_guests import Guest
from tests.people.test_people import refused

from turnout.chat import conversation_store
from turnout.chat.chat_scripts import change_conversation
from turnout.chat.conversation_rules import MAX_CONVERSATION_BYTES, KeptConversation
from turnout.errors import Unavailable
from turnout.tasks.task_rules import PersonId
from turnout.tenants.caller import person_owner
from turnout.tenants.tenant_settings import GuestSettings

PICTURE = "data:image/png;base64," + base64.b64encode(picture()).decode()


def message(message_id: str, parent: str | None = None, text: str = "hello", **more: Any) -> dict[str, Any]:
    role = "user" if parent is None else "assistant"
    return {"id": message_id, "parent": parent, "role": role, "text": text, **more}


def conversation(*messages: dict[str, Any], revision: int = 0, **more: Any) -> dict[str, Any]:
    leaf = messages[-1]["id"] if messages else None
    return {"revision": revision, "title": "Talk", "messages": list(messages), "leaf": leaf, **more}


async def test_a_conversation_is_kept_found_renamed_and_deleted(gateway: Gateway) -> None:
    http = gateway.http
    figures = {"tokens": 4, "first_token_ms": 20, "tokens_per_second": 1.5}
    said = [
        message("q1", pictures=[PICTURE]),
        message("a1", "q1", "A **Whale** swims.", model="m", figures=figures),
        message("a2", "q1", "", broken="It broke.", stopped=True),
    ]
    body = conversation(*said, system="Be brief.", temperature=0.2, model="m")
    made = (await http.put("/v1/conversations/c1", json=body)).json()
    assert (made["id"], made["revision"], made["title"], made["model"]) == ("c1", 1, "Talk", "m")
    found = (await http.get("/v1/conversations/c1")).json()
    assert found["messages"][1]["figures"] == figures and found["messages"][0]["pictures"] == [PICTURE]
    assert [one["id"] for one in found["messages"]] == ["q1", "a1", "a2"]
    assert (found["leaf"], found["system"], found["temperature"]) == ("a2", "Be brief.", 0.2)
    await http.put("/v1/conversations/c2", json=conversation(message("q"), title="Other"))
    listed = (await http.get("/v1/conversations")).json()
    assert [one["id"] for one in listed["data"]] == ["c2", "c1"] and listed["most"] == 200
    for words, ids in (("WHALE** \n swims", ["c1"]), ("whale", ["c1"]), ("other", ["c2"]), ("no", [])):
        hits = (await http.get("/v1/conversations", params={"search": words})).json()["data"]
        assert [one["id"] for one in hits] == ids, words
    renamed = await http.patch("/v1/conversations/c1", json={"title": "Of whales"})
    assert (renamed.json()["title"], renamed.json()["revision"]) == ("Of whales", 2)
    assert (await http.get("/v1/conversations/c1")).json()["title"] == "Of whales"
    assert (await http.delete("/v1/conversations/c1")).json()["deleted"] is True
    assert refused(await http.get("/v1/conversations/c1")) == (404, "conversation_not_found")
    assert refused(await http.delete("/v1/conversations/c1")) == (404, "conversation_not_found")
    left = [blob.key async for blob in gateway.blobs.list("conversations/")]
    assert len(left) == 2 and all("/c2/" in key for key in left)


async def test_what_was_changed_meanwhile_is_not_written_over(gateway: Gateway) -> None:
    http = gateway.http
    await http.put("/v1/conversations/c", json=conversation(message("q")))
    second = conversation(message("q"), message("a", "q"), revision=1)
    assert (await http.put("/v1/conversations/c", json=second)).json()["revision"] == 2
    for stale in (0, 1, 3):
        answer = await http.put("/v1/conversations/c", json={**second, "revision": stale})
        assert refused(answer) == (409, "conversation_changed")
    assert len([blob async for blob in gateway.blobs.list("conversations/")]) == 2, "one object of each kind"


async def test_nobody_sees_anothers(gateway: Gateway) -> None:
    await gateway.http.put("/v1/conversations/c", json=conversation(message("q")))
    other = bearer(await gateway.key("other"))
    same = bearer(await gateway.key("acme"))
    for path in ("/v1/conversations/c",):
        assert (await gateway.http.get(path, headers=other)).status_code == 404
        assert (await gateway.http.delete(path, headers=other)).status_code == 404
        assert (await gateway.http.patch(path, headers=other, json={"title": "x"})).status_code == 404
    assert (await gateway.http.get("/v1/conversations", headers=other)).json()["data"] == []
    assert len((await gateway.http.get("/v1/conversations", headers=same)).json()["data"]) == 1
    mine = await gateway.http.put("/v1/conversations/c", headers=other, json=conversation(message("q")))
    assert mine.json()["revision"] == 1


async def test_what_is_kept_is_bounded(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, keep_conversations=2) as gateway:
        http = gateway.http
        for name in ("a", "b"):
            assert (await http.put(f"/v1/conversations/{name}", json=conversation())).status_code == 200
        full = await http.put("/v1/conversations/c", json=conversation())
        assert refused(full) == (409, "too_many_conversations")
        assert (await http.put("/v1/conversations/b", json=conversation(revision=1))).status_code == 200
        large = conversation(*(message(f"m{i}", text="x" * 499_000) for i in range(9)), revision=1)
        assert (await http.put("/v1/conversations/a", json=large)).status_code == 413


async def test_guests_leave_little_behind(stores: Stores, tmp_path: Path) -> None:
    """Anyone can come as a guest: together they must not fill the disk."""
    noise = "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(3 * 2**19 - 60)).decode()
    async with running(stores, tmp_path, guests=GuestSettings()) as gateway:
        ann = Guest(gateway)
        await ann.come()
        put = [
            await http.put(
                f"/v1/conversations/c{n}", json=conversation(message("q", pictures=[noise])), headers=headers
            )
            for http, headers in ((ann.http, {}), (gateway.http, bearer(gateway.token)))
            for n in range(3)
        ]
        assert [one.status_code for one in put] == [200, 200, 413, 200, 200, 200]
        assert refused(put[2])[1] == "conversation_too_large"
        assert (await ann.http.get("/v1/conversations")).json()["most"] == 20
        assert (await gateway.http.get("/v1/conversations")).json()["most"] == 200


async def test_what_is_searched_and_what_comes_at_once_take_room_too(stores: Stores, tmp_path: Path) -> None:
    """Text that packs well took none, though its words lie there as they are; and all that came at once found the room empty."""
    plain = conversation(*(message(f"m{n}", text="la " * 160_000) for n in range(3)))
    noise = "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(2**20)).decode()
    async with running(stores, tmp_path, guests=GuestSettings()) as gateway:
        ann, ben = Guest(gateway), Guest(gateway)
        await ann.come()
        await ben.come()
        put = [await ann.http.put(f"/v1/conversations/c{n}", json=plain) for n in range(4)]
        assert [one.status_code for one in put] == [200, 200, 413, 413]
        at_once = await asyncio.gather(
            *(
                ben.http.put(f"/v1/conversations/c{n}", json=conversation(message("q", pictures=[noise])))
                for n in range(8)
            )
        )
        assert sorted(one.status_code for one in at_once) == [200] * 3 + [413] * 5
        sizes = [blob.size async for blob in gateway.blobs.list("conversations/")]
        assert sum(sizes) <= 2 * MAX_CONVERSATION_BYTES
        renamed = await ann.http.patch("/v1/conversations/c0", json={"title": "Of music"})
        assert renamed.status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [message("q", pictures=["https://example.invalid/a.png"])]},
        {"messages": [message("q", pictures=["data:image/svg+xml;base64,AAAA"])]},
        {"messages": [message("q", pictures=[PICTURE] * 9)]},
        {"messages": [{**message("q"), "role": "system"}]},
        {"messages": [message("../q")]},
        {"messages": [message("q", "nobody")]},
        {"leaf": "nobody"},
        {"more": 1},
        {"title": "x" * 201},
    ],
)
async def test_what_no_page_sends_is_refused(gateway: Gateway, fields: dict[str, Any]) -> None:
    answer = await gateway.http.put("/v1/conversations/c", json={**conversation(), **fields})
    assert answer.status_code == 400
    assert (await gateway.http.put("/v1/conversations/a.b", json=conversation())).status_code == 400


async def test_where_the_setting_says_so_nothing_is_kept(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, keep_conversations=0) as gateway:
        answer = await gateway.http.put("/v1/conversations/c", json=conversation(message("q")))
        assert refused(answer) == (409, "not_kept")
        assert (await gateway.http.get("/v1/conversations")).json()["most"] == 0


async def test_they_go_with_the_account_and_come_with_its_export(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, guests=GuestSettings()) as gateway:
        ann = Guest(gateway)
        person = PersonId(str((await ann.come())["person"]))
        put = await ann.http.put("/v1/conversations/c", json=conversation(message("q", text="mine")))
        assert put.status_code == 200, put.text
        archive = await ann.http.get("/v1/account/export")
        with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
            kept = json.loads(opened.read("conversations/c.json"))
        assert kept["messages"][0]["text"] == "mine"
        gone = await ann.http.delete("/v1/account", params={"everything": True})
        assert gone.status_code == 200, gone.text
    assert [blob async for blob in stores.blobs.list("conversations/")] == []
    assert await stores.tenants.conversations.of(person_owner(person)) == []


async def test_a_change_while_it_is_deleted_leaves_nothing_behind(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written after the look at it stayed in the object store, where nobody counted it."""
    store, path = gateway.stores.tenants.conversations, "/v1/conversations/c"
    assert (await gateway.http.put(path, json=conversation(message("q")))).status_code == 200
    find = store.find

    async def found_and_changed(owner: str, conversation_id: str) -> KeptConversation:
        found = await find(owner, conversation_id)
        await gateway.http.put(path, json=conversation(message("q"), revision=1))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(store, "find", found_and_changed)
        assert (await gateway.http.delete(path)).status_code == 200
    assert refused(await gateway.http.get(path)) == (404, "conversation_not_found")
    assert [blob.key async for blob in gateway.blobs.list("conversations/")] == []
    assert refused(await gateway.http.delete(path)) == (404, "conversation_not_found")


async def test_a_write_whose_answer_was_lost_is_there_whole(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def written_and_unanswered(*args: Any, **named: Any) -> int:
        await change_conversation(*args, **named)
        raise Unavailable("Redis went away.")

    with monkeypatch.context() as patched:
        patched.setattr(conversation_store, "change_conversation", written_and_unanswered)
        lost = await gateway.http.put("/v1/conversations/c", json=conversation(message("q", text="mine")))
    assert lost.status_code == 503
    found = (await gateway.http.get("/v1/conversations/c")).json()
    assert found["messages"][0]["text"] == "mine"
