"""How long a video takes, as forms, cards, the API and gangs are told: one estimate, kept by the service."""

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import Stores, wait_until
from tests.gangs import open_door
from tests.gateways import Gateway, running
from tests.tasks.test_gang_claims import submitted
from tests.tasks.test_waiting_notes import publish

from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.tasks import time_estimates
from turnout.tasks.gang_messages import FinishTold, ProgressTold
from turnout.tasks.pace_store import PaceStore
from turnout.tasks.task_rules import Finished, Progressed, Result, Stage, Task

MODEL = "wan-tiny-t2v"
ESTIMATE = f"/v1/models/{MODEL}/estimate"


async def render(gateway: Gateway, task: Task, step_s: float, finish_s: float = 1.0) -> None:
    """All that a gang would tell of the task, at times of the test's own."""
    at, say = task.claimed_at or 0.0, gateway.gang.say
    for stage, step, passed_s in (
        (Stage.ENCODING, 0, 0.0),
        *((Stage.DENOISING, step, step_s if step else 0.0) for step in range(task.spec.steps + 1)),
        (Stage.DECODING, task.spec.steps, 0.0),
    ):
        at += passed_s
        await say(task, Progressed(at, task.attempt, stage, step, task.spec.steps))
    await say(task, Finished(at + finish_s, task.attempt, Result("v", "t", "s", 1)))
    await gateway.inside.videos.estimates.learn(task.id)


async def made(gateway: Gateway, step_s: float, **fields: Any) -> None:
    await gateway.submit(**fields)
    await render(gateway, await gateway.gang.claim(), step_s)


async def asked(gateway: Gateway, **query: Any) -> dict[str, Any]:
    answer = await gateway.http.get(ESTIMATE, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_form_and_the_cards_say_the_same_of_a_line_of_other_videos(gateway: Gateway) -> None:
    """With 106 short tasks queued a form said 5 hours and cards said 4 minutes."""
    nothing = await asked(gateway)
    assert (nothing["render_s"], nothing["total_s"], nothing["seen"]) == (None, None, False)
    await made(gateway, step_s=2.0, steps=1)
    await made(gateway, step_s=16.0, steps=10, size="256x256")
    videos = [await gateway.submit(steps=1) for _ in range(106)]
    exact = pytest.approx(106 * 3, rel=0.02)

    async def settled() -> bool:
        eta_s = (await gateway.http.get(f"/v1/videos/{videos[-1]}")).json()["eta_s"]
        return eta_s == exact == (await asked(gateway, steps=10, size="256x256"))["wait_s"]

    await wait_until(settled, "a look at the line")
    assert (await gateway.http.get(f"/v1/videos/{videos[-1]}")).json()["queue_position"] == 105
    short, long = await asked(gateway, steps=1), await asked(gateway, steps=10, size="256x256")
    assert short["before"] == 106
    assert short["total_s"] == pytest.approx(107 * 3, rel=0.02)
    assert long["wait_s"] == short["wait_s"] == exact
    assert long["total_s"] == pytest.approx(106 * 3 + 161, rel=0.02)
    assert short["seen"] and long["seen"] and not (await asked(gateway, frames=33))["seen"]


async def test_who_comes_a_moment_after_another_is_told_of_it(gateway: Gateway) -> None:
    await made(gateway, step_s=2.0, steps=1)
    await made(gateway, step_s=16.0, steps=10, size="256x256")
    assert (await asked(gateway, steps=1))["total_s"] == pytest.approx(3, abs=0.2)
    await gateway.submit(steps=10, size="256x256")
    assert (await asked(gateway, steps=1))["total_s"] == pytest.approx(161 + 3, abs=0.5)


async def test_all_of_a_short_line_are_told_of_each_other_however_fast_they_come(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 ms apart, as one client of a fast machine submits; the first is taken by a gang that waited for it."""
    await made(gateway, step_s=2.0, steps=1)
    now_s = itertools.count(1000.003, 0.003)
    clock = SimpleNamespace(monotonic=lambda: 1000.0, time=time.time)
    monkeypatch.setattr(time_estimates, "time", clock)
    told: list[float] = []
    for number in range(5):
        answer = await gateway.http.post("/v1/videos", json={"model": MODEL, "prompt": "a ball", "steps": 1})
        told.append(answer.json()["eta_s"])
        if number == 0:
            await gateway.gang.claim()
        moment = next(now_s)
        clock.monotonic = lambda moment=moment: moment
    assert told == pytest.approx([3, 6, 9, 12, 15], rel=0.1)


async def test_what_was_learned_outlives_gateways_and_goes_with_its_model(
    stores: Stores, tmp_path: Path
) -> None:
    async with running(stores, tmp_path) as first:
        await made(first, step_s=2.0, steps=4)
    async with running(stores, tmp_path) as second:
        assert (await asked(second, steps=4))["render_s"] == pytest.approx(9.0, abs=0.2)
    await stores.backlog.forget(MODEL)
    assert (await PaceStore(stores.link).book(MODEL)).kinds == ()


async def test_a_model_that_sleeps_takes_its_waking_longer(gateway: Gateway) -> None:
    await made(gateway, step_s=2.0, steps=4)
    status = ModelStatus(ModelState.STOPPED, wake_s=30.0)
    await publish(gateway, status)

    async def told() -> bool:
        return (await asked(gateway, steps=4))["wake_s"] == 30.0

    await wait_until(told, "the status")
    assert (await asked(gateway, steps=4))["total_s"] == pytest.approx(39.0, abs=0.2)
    video = await gateway.submit(steps=4)
    assert (await gateway.http.get(f"/v1/videos/{video}")).json()["eta_s"] == pytest.approx(39, abs=0.2)


async def test_an_estimate_refuses_what_a_submission_would(gateway: Gateway) -> None:
    for query, code in (
        ({"size": "17x16"}, 400),
        ({"steps": "0"}, 400),
        ({"steps": "many"}, 400),
        ({"guidance": "a,b"}, 400),
        ({"loras": "none-such"}, 400),
        ({"prompt": "a ball"}, 400),
        ({"image": "true"}, 400),
    ):
        answer = await gateway.http.get(ESTIMATE, params=query)
        assert (answer.status_code, bool(answer.json()["error"]["message"])) == (code, True), query
    assert (await gateway.http.get("/v1/models/none-such/estimate")).status_code == 404
    assert (await gateway.http.get(ESTIMATE, headers={"authorization": "Bearer no"})).status_code == 401
    needs_image = await gateway.http.get("/v1/models/i2v-big/estimate")
    assert needs_image.status_code == 200, "a form asks before a picture was chosen"
    everything = {"size": "128x128", "seconds": "2", "fps": "8", "steps": "4", "guidance": "3,4"}
    everything |= {"guided_share": "0.5", "step_cache": "0.1", "fp8_attention": "true", "loras": ""}
    assert (await gateway.http.get(ESTIMATE, params=everything)).status_code == 200


async def test_a_gang_learns_with_its_claim_what_its_task_should_take(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        for turn in range(2):
            await submitted(stores)
            task = await api.claim(loading=turn == 0, wait_s=10)
            assert task is not None
            assert (task.expected is None) == (turn == 0)
            attempt = api.attempt(task)
            for stage, step in (
                (Stage.ENCODING, 0),
                *((Stage.DENOISING, step) for step in range(5)),
                (Stage.DECODING, 4),
                (Stage.UPLOADING, 4),
            ):
                await attempt.report(ProgressTold(stage=stage, step=step, of=4))
            for name in ("video.mp4", "thumbnail.webp", "spritesheet.jpg"):
                await attempt.put(name, b"x")
            await attempt.report(FinishTold(bytes=1))
            await attempt.over()

            async def learned() -> bool:
                return bool((await PaceStore(stores.link).book(MODEL)).kinds)

            await wait_until(learned, "the pace to be learned")
