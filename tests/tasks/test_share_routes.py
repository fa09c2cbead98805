"""Share links: one video, for a while, for anyone, until revoked."""

from tests.gateways import Gateway, bearer

from turnout.tasks.task_rules import TaskId

VIDEO = b"\1" * 500


async def shared_video(gateway: Gateway) -> tuple[str, str, str]:
    """(video, share, token); the client has no key afterwards."""
    video = await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim(), VIDEO)
    made = await gateway.http.post(f"/v1/videos/{video}/shares", json={"expires_in_s": 3600})
    assert made.status_code == 200, made.text
    return video, made.json()["id"], made.json()["token"]


async def test_whoever_has_the_link_sees_this_video_and_nothing_else(gateway: Gateway) -> None:
    video, _, token = await shared_video(gateway)
    other = await gateway.submit(prompt="another")
    await gateway.gang.finish(await gateway.gang.claim())
    del gateway.http.headers["authorization"]
    headers = {"x-turnout-share": token}
    shown = await gateway.http.get("/v1/shared", headers=headers)
    assert shown.status_code == 200 and shown.json()["prompt"] == "a red ball"
    assert (await gateway.http.get("/v1/shared/content", headers=headers)).content == VIDEO
    part = await gateway.http.get("/v1/shared/content", headers={**headers, "range": "bytes=0-9"})
    assert (part.status_code, len(part.content)) == (206, 10)
    assert (await gateway.http.get(f"/v1/videos/{video}", headers=headers)).status_code == 401
    swapped = token.replace(video, other)
    assert (await gateway.http.get("/v1/shared", headers={"x-turnout-share": swapped})).status_code == 404


async def test_a_revoked_an_expired_a_wrong_and_a_deleted_one_look_alike(gateway: Gateway) -> None:
    video, share, token = await shared_video(gateway)
    again = await gateway.http.post(f"/v1/videos/{video}/shares", json={"expires_in_s": 3600})
    assert (await gateway.http.delete(f"/v1/videos/{video}/shares/{share}")).status_code == 204
    assert (await gateway.http.delete(f"/v1/videos/{video}/shares/{share}")).status_code == 404
    assert [s["id"] for s in (await gateway.http.get(f"/v1/videos/{video}/shares")).json()["data"]] == [
        again.json()["id"]
    ]
    good = {"x-turnout-share": again.json()["token"]}
    assert (await gateway.http.get("/v1/shared", headers=good)).status_code == 200
    assert (await gateway.http.delete(f"/v1/videos/{video}")).status_code == 200
    wrong = again.json()["token"][:-1] + ("A" if again.json()["token"][-1] != "A" else "B")
    for bad in (token, wrong, "no-token", "a.b.c", again.json()["token"]):
        answer = await gateway.http.get("/v1/shared", headers={"x-turnout-share": bad})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "share_not_found"), bad


async def test_an_expired_link_opens_nothing(gateway: Gateway) -> None:
    _, _, token = await shared_video(gateway)
    task, share, _ = token.split(".")
    store = gateway.inside.stores.share_links
    found = (await store.of(TaskId(task)))[0]
    assert found.id == share and not found.opens(token.split(".")[2], found.expires_at)


async def test_only_a_finished_video_of_ones_own_is_shared_and_not_too_often(gateway: Gateway) -> None:
    video = await gateway.submit()
    early = await gateway.http.post(f"/v1/videos/{video}/shares", json={})
    assert (early.status_code, early.json()["error"]["code"]) == (409, "video_not_ready")
    await gateway.gang.finish(await gateway.gang.claim())
    stranger = bearer(await gateway.key("other"))
    assert (
        await gateway.http.post(f"/v1/videos/{video}/shares", json={}, headers=stranger)
    ).status_code == 404
    answers = [await gateway.http.post(f"/v1/videos/{video}/shares", json={}) for _ in range(21)]
    assert [a.status_code for a in answers] == [200] * 20 + [429]
