"""What admins see and do across tenants: the queue in its order, cancelling, logs, the audit log by words."""

import json
from pathlib import Path

from tests.gateways import Gateway, bearer

from turnout.tasks.task_rules import Stage
from turnout.tenants.key_rules import Role


async def test_an_admin_sees_everybodys_tasks_in_the_order_they_are_served(gateway: Gateway) -> None:
    admin, other = bearer(await gateway.key("ops", Role.ADMIN)), bearer(await gateway.key("other"))
    ids = [await gateway.submit(prompt="a secret") for _ in range(3)]
    answer = await gateway.http.post("/v1/videos", json={"prompt": "mine"}, headers=other)
    ids.append(answer.json()["id"])
    running = await gateway.gang.progress(await gateway.gang.claim(), Stage.DENOISING, 3)
    said = (await gateway.http.get("/v1/queues/tasks", headers=admin)).json()
    rows = said["data"]
    assert said["unfinished"] == {"wan-tiny-t2v": 4}
    assert (rows[0]["id"], rows[0]["status"], rows[0]["queue_position"]) == (running.id, "in_progress", None)
    # Tenants take turns: the other one comes before the second of the first.
    assert [(row["tenant"], row["queue_position"]) for row in rows[1:]] == [
        ("other", 0),
        ("acme", 1),
        ("acme", 2),
    ]
    assert "secret" not in json.dumps(said), "a prompt is its owner's"
    assert (await gateway.http.get("/v1/queues/tasks")).status_code == 403


async def test_an_admin_cancels_anybodys_task_and_it_is_on_record(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    video = await gateway.submit()
    assert (await gateway.http.post(f"/v1/queues/tasks/{video}/cancel")).status_code == 403
    cancelled = await gateway.http.post(f"/v1/queues/tasks/{video}/cancel", headers=admin)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert (await gateway.http.get(f"/v1/videos/{video}")).json()["status"] == "cancelled"
    assert (await gateway.http.get("/v1/queues/tasks", headers=admin)).json()["data"] == []
    gone = await gateway.http.post("/v1/queues/tasks/video_none/cancel", headers=admin)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "video_not_found")
    found = await gateway.http.get("/v1/audit", params={"query": "TASK.Cancel"}, headers=admin)
    assert [(entry["action"], entry["target"]) for entry in found.json()["data"]] == [
        ("task.cancelled", video)
    ]


async def test_the_audit_log_is_searched_to_its_end(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    for n in range(12):
        body = {"tenant": "one" if n % 4 else "rare", "role": "user"}
        await gateway.http.post("/v1/keys", json=body, headers=admin)
    pages, before = 0, {}
    found: list[str] = []
    while True:
        query = {"query": "rare", "limit": 2, **before}
        page = (await gateway.http.get("/v1/audit", params=query, headers=admin)).json()
        found += [entry["detail"]["tenant"] for entry in page["data"]]
        pages += 1
        if not page["has_more"]:
            break
        before = {"before": page["data"][-1]["id"]}
    assert (found, pages) == (["rare"] * 3, 2)


async def test_logs_are_read_by_part_and_by_task_for_admins_alone(gateway: Gateway, tmp_path: Path) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    assert (await gateway.http.get("/v1/logs", headers=admin)).json() == {
        "object": "list",
        "data": [],
        "parts": [],
    }
    logs, inside = tmp_path / "logs", tmp_path / "worker" / "logs"
    logs.mkdir()
    inside.mkdir(parents=True)
    lines = [
        {
            "timestamp": f"2026-11-18T08:00:{n:02}Z",
            "level": "info",
            "event": f"e{n}",
            "task": f"video_{n % 2}",
        }
        for n in range(20)
    ]
    (logs / "gateway.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (inside / "rank-0.log").write_text("Traceback of video_1\nplain\n")
    said = (await gateway.http.get("/v1/logs", params={"part": "gateway", "lines": 3}, headers=admin)).json()
    assert [line["event"] for line in said["data"]] == ["e17", "e18", "e19"]
    assert said["parts"] == ["gateway", "rank-0"]
    assert said["data"][0]["fields"] == {"task": "video_1"}
    said = (await gateway.http.get("/v1/logs", params={"task": "video_1"}, headers=admin)).json()
    assert len(said["data"]) == 11
    assert {line["part"] for line in said["data"]} == {"gateway", "rank-0"}
    assert (await gateway.http.get("/v1/logs")).status_code == 403
    wrong = await gateway.http.get("/v1/logs", params={"part": "../etc"}, headers=admin)
    assert wrong.status_code == 400
