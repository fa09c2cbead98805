"""Who may do what: keys, roles, tenants, limits; and errors that belong to no route."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, identified, running

from turnout.errors import Unauthorized, Unavailable
from turnout.tasks.task_rules import TaskId, TenantId
from turnout.tenants.caller import caller_with
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.key_rules import Role, mint

VIDEO_ROUTES = [
    ("GET", ""),
    ("DELETE", ""),
    ("GET", "/content"),
    ("HEAD", "/content"),
    ("GET", "/events"),
    ("POST", "/cancel"),
    ("POST", "/remix"),
]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        ({"authorization": "Basic dXNlcjpwYXNz"}, "missing_api_key"),
        ({"authorization": "Bearer sk-123"}, "invalid_api_key"),
        ({"authorization": "Bearer tk-nobody.nothing"}, "invalid_api_key"),
        ({"authorization": "Bearer tk-" + "x" * 500 + ".y"}, "invalid_api_key"),
    ],
)
async def test_no_key_or_a_wrong_one_is_refused_everywhere(
    gateway: Gateway, headers: dict[str, str], code: str
) -> None:
    del gateway.http.headers["authorization"]
    for method, path in [
        ("POST", "/v1/videos"),
        ("GET", "/v1/videos?limit=9999"),
        ("POST", "/generate"),
        ("GET", "/v1/models"),
        ("GET", "/v1/keys"),
        *[(m, f"/v1/videos/video_1{p}") for m, p in VIDEO_ROUTES if m != "HEAD"],
    ]:
        answer = await gateway.http.request(method, path, headers=headers)
        assert answer.status_code == 401, (method, path)
        assert answer.json()["error"]["code"] == code
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_secret_of_another_key_is_refused(gateway: Gateway) -> None:
    other = await gateway.key()
    mixed = gateway.token.partition(".")[0] + "." + other.partition(".")[2]
    assert (await gateway.http.get("/v1/videos", headers=bearer(mixed))).status_code == 401


@pytest.mark.parametrize(("method", "path"), VIDEO_ROUTES)
async def test_another_tenants_video_does_not_exist(gateway: Gateway, method: str, path: str) -> None:
    video = await gateway.submit()
    stranger = bearer(await gateway.key("other"))
    body = {"prompt": "mine now"} if path == "/remix" else None
    answers = [
        await gateway.http.request(method, f"/v1/videos/{name}{path}", headers=stranger, json=body)
        for name in (video, "video_unknown", "a:b{c}", "video_" + "x" * 200)
    ]
    assert [a.status_code for a in answers] == [404, 404, 404, 404]
    if method != "HEAD":
        assert answers[0].json()["error"] == {
            "message": f"There is no video {video}.",
            "type": "not_found_error",
            "param": "video_id",
            "code": "video_not_found",
        }
    assert not (await gateway.task(video)).ended


async def test_a_list_shows_a_tenant_its_own_alone_page_by_page(gateway: Gateway) -> None:
    mine = [await gateway.submit() for _ in range(3)]
    other = bearer(await gateway.key("other"))
    assert (await gateway.http.get("/v1/videos", headers=other)).json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
    first = (await gateway.http.get("/v1/videos?limit=2&order=asc")).json()
    rest = (await gateway.http.get(f"/v1/videos?limit=2&order=asc&after={first['last_id']}")).json()
    assert [v["id"] for v in first["data"] + rest["data"]] == mine
    assert (first["has_more"], rest["has_more"]) == (True, False)
    newest = (await gateway.http.get("/v1/videos?limit=1")).json()
    assert newest["data"][0]["id"] == mine[-1]
    assert [v["queue_position"] for v in first["data"]] == [0, 1]
    foreign = await gateway.http.get(f"/v1/videos?after={mine[0]}", headers=other)
    assert (foreign.status_code, foreign.json()["error"]["param"]) == (404, "after")


@pytest.mark.parametrize(
    ("query", "param", "message"),
    [
        ("limit=0", "limit", "limit must be at least 1."),
        ("limit=101", "limit", "limit must be at most 100."),
        ("limit=all", "limit", "limit must be a whole number."),
        ("order=up", "order", "order must be 'asc' or 'desc'."),
    ],
)
async def test_a_bad_query_is_named(gateway: Gateway, query: str, param: str, message: str) -> None:
    answer = await gateway.http.get(f"/v1/videos?{query}")
    assert answer.status_code == 400
    assert (answer.json()["error"]["param"], answer.json()["error"]["message"]) == (param, message)


async def test_a_workers_key_sees_no_videos_and_a_users_no_keys(gateway: Gateway) -> None:
    worker = bearer(await gateway.key(role=Role.WORKER))
    for answer in (
        await gateway.http.post("/v1/videos", json={"prompt": "x"}, headers=worker),
        await gateway.http.get("/v1/keys", headers=worker),
        await gateway.http.get("/v1/keys"),
        await gateway.http.post("/v1/keys", json={}),
    ):
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "role_not_allowed"


async def test_an_admin_makes_lists_and_revokes_keys(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    made = await gateway.http.post(
        "/v1/keys", json={"tenant": "beta", "role": "user", "name": "ci"}, headers=admin
    )
    key = made.json()
    assert (key["tenant"], key["role"], key["name"]) == ("beta", "user", "ci")
    mine = bearer(key["token"])
    assert (await gateway.http.get("/v1/videos", headers=mine)).status_code == 200
    listed = await gateway.http.get("/v1/keys", headers=admin)
    assert {k["id"] for k in listed.json()["data"]} >= {key["id"]}
    assert key["token"].partition(".")[2] not in listed.text
    gone = await gateway.http.delete(f"/v1/keys/{key['id']}", headers=admin)
    assert gone.json() == {"id": key["id"], "object": "key.deleted", "deleted": True}
    assert (await gateway.http.get("/v1/videos", headers=mine)).status_code == 401
    again = await gateway.http.delete(f"/v1/keys/{key['id']}", headers=admin)
    assert (again.status_code, again.json()["error"]["code"]) == (404, "key_not_found")


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"role": "king"}, "role", "role must be 'user', 'admin', 'worker' or 'metrics'."),
        ({"tenant": "a b"}, "tenant", "tenant must match ^[A-Za-z0-9_-]{1,64}$."),
        ({"name": "x" * 101}, "name", "name is over 100 characters."),
        ({"scope": "all"}, "scope", "Unknown parameter: scope."),
    ],
)
async def test_a_bad_key_request_is_named(
    gateway: Gateway, body: dict[str, str], param: str, message: str
) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    answer = await gateway.http.post("/v1/keys", json=body, headers=admin)
    assert answer.status_code == 400
    assert (answer.json()["error"]["param"], answer.json()["error"]["message"]) == (param, message)


async def test_a_key_revoked_elsewhere_stops_working_within_seconds(stores: Stores) -> None:
    now = [1000.0]
    ring = KeyRing(stores.tenants.keys, lambda: now[0])
    key, token = mint("k1", "s1", TenantId("acme"), Role.USER, "", 0)
    await stores.tenants.keys.add(key)
    assert await identified(ring, token) == caller_with(key)
    await stores.tenants.keys.revoke("k1")
    now[0] += 4.9
    assert await identified(ring, token) == caller_with(key)
    now[0] += 0.2
    with pytest.raises(Exception, match="not valid"):
        await identified(ring, token)


async def test_over_the_limits_of_running_and_waiting_is_429_and_leaves_no_image(
    stores: Stores, tmp_path: Path
) -> None:
    async with running(stores, tmp_path, limit_running=1, limit_waiting=1) as gateway:
        await gateway.submit()
        await gateway.submit()
        answer = await gateway.http.post(
            "/v1/videos",
            json={
                "prompt": "x",
                "image_url": (
                    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
                    "awAAAABJRU5ErkJggg=="
                ),
            },
        )
        assert answer.status_code == 429, answer.text
        assert answer.json()["error"] == {
            "message": "You have 0 tasks running and 2 waiting; 1 may run and 1 more may wait.",
            "type": "rate_limit_error",
            "param": None,
            "code": "too_many_tasks",
        }
        assert int(answer.headers["retry-after"]) >= 1
        assert [b async for b in gateway.blobs.list("tasks/")] == []


async def test_over_the_rate_is_429_and_says_when_to_come_back(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, limit_submits_per_minute=2) as gateway:
        # Three minutes' worth of submissions cannot all fit, wherever in a minute this runs.
        answers = [await gateway.http.post("/v1/videos", json={"prompt": "x"}) for _ in range(5)]
        limited = [a for a in answers if a.status_code == 429]
        assert limited
        assert limited[0].json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(limited[0].headers["retry-after"]) <= 60


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("application/json", b'{"prompt": "'),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n'),
    ],
)
async def test_a_body_over_the_limit_is_413_with_or_without_a_length(
    stores: Stores, tmp_path: Path, kind: str, start: bytes
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield start
        for _ in range(40):
            yield b"x" * 100

    async with running(stores, tmp_path, max_body_bytes=2000) as gateway:
        for content in (start + b"x" * 2001, pieces()):
            answer = await gateway.http.post("/v1/videos", content=content, headers={"content-type": kind})
            assert answer.status_code == 413
            assert answer.json()["error"] == {
                "message": "The body is over 2000 bytes.",
                "type": "invalid_request_error",
                "param": None,
                "code": "body_too_large",
            }


async def test_unknown_routes_and_methods_have_the_same_shape(gateway: Gateway) -> None:
    missing = await gateway.http.get("/v2/nothing")
    assert missing.json()["error"] == {
        "message": "There is no GET /v2/nothing.",
        "type": "not_found_error",
        "param": None,
        "code": "unknown_url",
    }
    wrong = await gateway.http.put("/v1/videos")
    assert wrong.status_code == 405
    assert set(wrong.headers["allow"].split(", ")) >= {"POST"}
    assert wrong.json()["error"]["code"] == "method_not_allowed"


async def test_answers_carry_headers_for_browsers(gateway: Gateway) -> None:
    for path in ("/v1/videos", "/nothing"):
        headers = (await gateway.http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_redis_away_is_503_with_retry_after(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnout.errors import Unavailable

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("Redis did not answer: 10.0.0.5:6379", retry_after_s=1.0)

    monkeypatch.setattr(gateway.stores.tasks, "submit_with_position", away)
    answer = await gateway.http.post("/v1/videos", json={"prompt": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == {
        "message": "A part of the service is not available; try again.",
        "type": "server_error",
        "param": None,
        "code": "unavailable",
    }


async def test_a_surprise_is_a_500_that_says_nothing(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret is 42")

    monkeypatch.setattr(gateway.stores.tasks, "submit_with_position", broken)
    answer = await gateway.http.post("/v1/videos", json={"prompt": "x"})
    assert answer.status_code == 500
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'route="/v1/videos",status="500"} 1.0' in (await gateway.http.get("/metrics")).text
    assert answer.json()["error"] == {
        "message": "The server failed to answer; this has been logged.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }


async def test_cancel_ends_a_waiting_and_a_running_task_once(gateway: Gateway) -> None:
    waiting, running_one = await gateway.submit(), None
    answer = await gateway.http.post(f"/v1/videos/{waiting}/cancel")
    assert (answer.json()["status"], answer.json()["queue_position"]) == ("cancelled", None)
    assert "openai-poll-after-ms" not in answer.headers
    assert (await gateway.http.post(f"/v1/videos/{waiting}/cancel")).json()["status"] == "cancelled"
    running_one = await gateway.submit()
    await gateway.gang.claim()
    assert (await gateway.http.post(f"/v1/videos/{running_one}/cancel")).json()["status"] == "cancelled"


async def test_cancel_of_a_completed_task_is_a_conflict(gateway: Gateway) -> None:
    video = await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim())
    answer = await gateway.http.post(f"/v1/videos/{video}/cancel")
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == "The video is completed already."
    assert answer.json()["error"]["code"] == "video_ended"


async def test_delete_cancels_what_runs_and_removes_its_objects(gateway: Gateway) -> None:
    video = await gateway.submit()
    task = await gateway.gang.claim()
    await gateway.gang.preview(task, 1, b"webp")
    answer = await gateway.http.delete(f"/v1/videos/{video}")
    assert answer.json() == {"id": video, "object": "video.deleted", "deleted": True}
    assert (await gateway.http.get(f"/v1/videos/{video}")).status_code == 404
    assert [b async for b in gateway.blobs.list(f"tasks/{video}/")] == []
    assert (await gateway.http.delete(f"/v1/videos/{video}")).status_code == 404
    assert (await gateway.http.get("/v1/videos")).json()["data"] == []


async def test_a_remix_keeps_all_but_the_prompt(gateway: Gateway) -> None:
    source = (
        await gateway.http.post(
            "/v1/videos", json={"prompt": "a", "seed": 5, "steps": 3, "guidance": [1, 2], "size": "64x64"}
        )
    ).json()
    remix = (await gateway.http.post(f"/v1/videos/{source['id']}/remix", json={"prompt": "b"})).json()
    assert remix["remixed_from_video_id"] == source["id"]
    assert remix["prompt"] == "b"
    same = ("model", "seed", "steps", "guidance", "size", "frames", "fps", "shift", "negative_prompt")
    assert {k: remix[k] for k in same} == {k: source[k] for k in same}
    bad = await gateway.http.post(f"/v1/videos/{source['id']}/remix", json={"prompt": " "})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "prompt")
    other_seed = (await gateway.http.post(f"/v1/videos/{source['id']}/remix", json={"seed": 6})).json()
    assert (other_seed["prompt"], other_seed["seed"]) == ("a", 6)
    assert {k: other_seed[k] for k in same if k != "seed"} == {k: source[k] for k in same if k != "seed"}


async def test_a_remix_has_its_own_copy_of_the_image(gateway: Gateway) -> None:
    from tests.gateways import picture

    made = await gateway.http.post(
        "/v1/videos", data={"prompt": "a"}, files={"input_reference": ("a.png", picture())}
    )
    source = made.json()["id"]
    assert made.json()["has_image"]
    remix = (await gateway.http.post(f"/v1/videos/{source}/remix", json={"prompt": "b"})).json()["id"]
    await gateway.http.delete(f"/v1/videos/{source}")
    task = await gateway.task(remix)
    image = f"tasks/{remix}/input.png"
    assert task.spec.image == image
    assert (await gateway.blobs.get(image)).startswith(b"\x89PNG")


async def test_cancel_and_delete_at_once_leave_no_task(gateway: Gateway) -> None:
    video = await gateway.submit()
    await gateway.gang.claim()
    answers = await asyncio.gather(
        gateway.http.post(f"/v1/videos/{video}/cancel"), gateway.http.delete(f"/v1/videos/{video}")
    )
    assert answers[1].status_code == 200
    assert answers[0].status_code in (200, 404)
    with pytest.raises(Exception, match="There is no video"):
        await gateway.stores.tasks.get(TaskId(video))


async def test_a_known_key_outlives_a_short_absence_of_redis(gateway: Gateway) -> None:
    clock, away = [0.0], False

    class Store:
        async def find(self, key_id: str) -> Any:
            if away:
                raise Unavailable("Redis is away")
            return await gateway.stores.tenants.keys.find(key_id)

    store: Any = Store()
    ring = KeyRing(store, lambda: clock[0])
    known, unknown = await gateway.key(), await gateway.key()
    await identified(ring, known)
    away, clock[0] = True, 30.0
    assert (caller := await identified(ring, known)) and caller.tenant == "acme"
    with pytest.raises(Unauthorized):
        await identified(ring, f"{known}x")
    with pytest.raises(Unavailable):
        await identified(ring, unknown)
    clock[0] = 61.0
    with pytest.raises(Unavailable):
        await identified(ring, known)
