"""A caller's own id of a task: it stands for the video's id everywhere, within its tenant."""

from typing import Any

import httpx
import pytest
from tests.gateways import Gateway, bearer

ASK = {"task_id": "go-task-0001", "prompt": "a red ball", "sampling_steps": 4}


async def generate(gateway: Gateway, **changes: Any) -> httpx.Response:
    return await gateway.http.post("/generate", json={**ASK, **changes})


async def test_the_older_interface_answers_with_the_callers_own_id(gateway: Gateway) -> None:
    for _ in range(2):  # asking again starts nothing
        answer = await generate(gateway)
        assert answer.json() == {"status": "task_started", "task_id": "go-task-0001"}
    listed = (await gateway.http.get("/v1/videos")).json()["data"]
    assert [(video["task_id"], video["steps"]) for video in listed] == [("go-task-0001", 4)]


async def test_an_own_id_names_the_task_everywhere(gateway: Gateway) -> None:
    await generate(gateway)
    path = "/v1/videos/go-task-0001"
    video = (await gateway.http.get(path)).json()
    assert video["id"].startswith("video_") and video["status"] == "queued"
    await gateway.gang.finish(await gateway.gang.claim(), b"mp4")
    assert (await gateway.http.get(f"{path}/content")).content == b"mp4"
    events = (await gateway.http.get(f"{path}/events")).text
    assert "event: video.completed" in events
    assert (await gateway.http.post(f"{path}/shares", json={})).status_code == 200
    remix = (await gateway.http.post(f"{path}/remix", json={"prompt": "blue"})).json()
    assert (remix["remixed_from_video_id"], remix["task_id"]) == (video["id"], None)
    page = await gateway.http.get("/v1/videos", params={"after": "go-task-0001", "order": "asc"})
    assert [one["id"] for one in page.json()["data"]] == [remix["id"]]


async def test_a_task_can_be_cancelled_and_deleted_by_its_own_id_which_is_free_then(gateway: Gateway) -> None:
    await generate(gateway)
    first = (await gateway.http.post("/v1/videos/go-task-0001/cancel")).json()
    assert first["status"] == "cancelled"
    assert (await gateway.http.delete("/v1/videos/go-task-0001")).json()["id"] == first["id"]
    assert (await gateway.http.get("/v1/videos/go-task-0001")).status_code == 404
    assert (await generate(gateway, prompt="another")).status_code == 200
    assert (await gateway.http.get("/v1/videos/go-task-0001")).json()["prompt"] == "another"


async def test_an_own_id_with_another_body_is_a_conflict(gateway: Gateway) -> None:
    await generate(gateway)
    problem = (await generate(gateway, prompt="another")).json()["error"]
    assert (problem["param"], problem["code"]) == ("task_id", "idempotency_conflict")
    assert problem["message"] == "This task_id was used with another request."


async def test_own_ids_of_two_tenants_do_not_meet(gateway: Gateway) -> None:
    await generate(gateway)
    theirs = bearer(await gateway.key("other"))
    path = "/v1/videos/go-task-0001"
    assert (await gateway.http.get(path, headers=theirs)).status_code == 404
    other = await gateway.http.post("/generate", json={**ASK, "prompt": "theirs"}, headers=theirs)
    assert other.json()["task_id"] == "go-task-0001"
    assert (await gateway.http.get(path, headers=theirs)).json()["prompt"] == "theirs"
    assert (await gateway.http.get(path)).json()["prompt"] == "a red ball"


async def test_an_id_of_ours_as_own_id_hides_no_other_task(gateway: Gateway) -> None:
    taken = await gateway.submit(prompt="first")
    await generate(gateway, task_id=taken)
    assert (await gateway.http.get(f"/v1/videos/{taken}")).json()["prompt"] == "first"
    await generate(gateway, task_id="video_mine")
    assert (await gateway.http.get("/v1/videos/video_mine")).json()["task_id"] == "video_mine"


@pytest.mark.parametrize(
    "task_id",
    ["", "../x", "a b", "x" * 129, "-x", 7],
)
async def test_an_odd_own_id_is_refused(gateway: Gateway, task_id: object) -> None:
    answer = await generate(gateway, task_id=task_id)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "task_id")


async def test_an_own_id_and_another_idempotency_key_are_refused(gateway: Gateway) -> None:
    answer = await gateway.http.post("/generate", json=ASK, headers={"Idempotency-Key": "other"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "task_id")


@pytest.mark.parametrize("name", ["n", "num_outputs_per_prompt"])
async def test_one_request_makes_one_video(gateway: Gateway, name: str) -> None:
    assert (await generate(gateway, **{name: 1})).status_code == 200
    answer = await generate(gateway, **{name: 2})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
