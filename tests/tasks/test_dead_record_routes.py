"""Dead records over HTTP, for admins."""

from tests.gateways import Gateway, bearer

from turnout.tasks.task_rules import TaskId
from turnout.tenants.key_rules import Role


async def test_a_task_that_could_not_be_read_is_listed_shown_and_submitted_again(gateway: Gateway) -> None:
    video = await gateway.submit(seed=5)
    link = gateway.stores.link
    record = await link.client.hget(link.keys.task(video), "doc")
    await link.client.hset(link.keys.task(video), "doc", b"{")
    assert (await gateway.http.get(f"/v1/videos/{video}")).json()["error"]["code"] == "record_unreadable"
    assert (await gateway.http.get("/v1/dead-records")).status_code == 403
    gateway.http.headers.update(bearer(await gateway.key("ops", Role.ADMIN)))
    listed = (await gateway.http.get("/v1/dead-records")).json()["data"]
    assert [(r["kind"], r["name"]) for r in listed] == [("task", video)]
    assert (await gateway.http.get(f"/v1/dead-records/task/{video}")).json()["content"] == "{"
    again = await gateway.http.post(f"/v1/dead-records/task/{video}/retry")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "record_unreadable")
    # A version that can read it comes along.
    await link.client.hset(link.keys.dead(), f"task {video}", record)
    again = await gateway.http.post(f"/v1/dead-records/task/{video}/retry")
    assert again.status_code == 200, again.text
    task = await gateway.task(TaskId(again.json()["video"]))
    assert (task.tenant, task.spec.prompt, task.spec.seed) == ("acme", "a red ball", 5)
    assert (await gateway.http.get("/v1/dead-records")).json()["data"] == []
    assert (await gateway.http.delete(f"/v1/dead-records/task/{video}")).status_code == 404


async def test_a_dead_record_is_dropped(gateway: Gateway) -> None:
    link = gateway.stores.link
    await link.client.hset(link.keys.dead(), "event of video_1 5-0", b"\xff")
    gateway.http.headers.update(bearer(await gateway.key("ops", Role.ADMIN)))
    kind = "event%20of%20video_1"
    assert (await gateway.http.get(f"/v1/dead-records/{kind}/5-0")).json()["content"] == "\\xff"
    assert (await gateway.http.delete(f"/v1/dead-records/{kind}/5-0")).status_code == 200
    assert (await gateway.http.get("/v1/dead-records")).json()["data"] == []
