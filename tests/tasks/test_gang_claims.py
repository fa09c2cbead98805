"""A gang claims over HTTP: it is told at once of what comes, nothing is lost with an answer, and nobody gets what is
not theirs."""

import asyncio
import runpy
from pathlib import Path

import httpx
import pytest
from tests.conftest import Stores, make_task, wait_until
from tests.doc_blocks import ROOT, blocks
from tests.gangs import Door, open_door
from tests.pace import patient

from turnout.errors import Stale, Unauthorized
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import ReplicaId, ReplicaOrder, Want
from turnout.fleet.worker_rules import Enrolment, OrderSheet
from turnout.gang.gang_api import GangApi
from turnout.tasks.gang_messages import ClaimedTask, FinishTold, InterruptionTold, ProgressTold
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import Cancelled, GangId, Limits, Stage, State, Task
from turnout.tenants.key_rules import Role

LIMITS = Limits(100, 100, 1000)
MODEL = "wan-tiny-t2v"
STEP = ProgressTold(stage=Stage.DENOISING, step=1, of=4)


async def submitted(stores: Stores, **fields: object) -> Task:
    return await stores.tasks.submit(make_task(**fields), LIMITS)  # type: ignore[arg-type]


async def claimed_by(api: GangApi) -> ClaimedTask:
    """What waits for it, at once."""
    claimed = await api.claim(loading=False, wait_s=0)
    assert claimed is not None
    return claimed


async def is_refused(api: GangApi) -> bool:
    try:
        await api.held()
    except Unauthorized:
        return True
    return False


async def held_open(stores: Stores) -> None:
    """A claim of g1 has come to the gateway."""

    async def waits() -> bool:
        return await stores.link.client.exists(stores.link.keys.claiming("g1")) == 1

    await wait_until(waits, "the claim to be held open")


async def test_a_claim_that_is_held_open_is_answered_when_a_task_comes(stores: Stores) -> None:
    async with open_door(stores) as door:
        claiming = asyncio.create_task(door.api("g1").claim(loading=False, wait_s=30))
        await held_open(stores)
        task = await submitted(stores)
        claimed = await asyncio.wait_for(claiming, patient(10))
        assert claimed is not None and (claimed.id, claimed.attempt) == (task.id, 1)
        assert (await stores.tasks.get(task.id)).gang == "g1"


async def test_a_gang_is_told_nothing_of_whose_its_task_is(stores: Stores) -> None:
    async with open_door(stores) as door:
        await submitted(stores, tenant="secret-tenant", webhook_url="https://hook.example/secret")
        claimed = await claimed_by(door.api("g1"))
        assert "secret-tenant" not in claimed.model_dump_json() and "hook" not in claimed.model_dump_json()


async def test_a_task_whose_answer_was_lost_is_told_again_in_the_same_attempt(stores: Stores) -> None:
    async with open_door(stores) as door:
        await submitted(stores)
        api = door.api("g1")
        first, again = await claimed_by(api), await claimed_by(api)
        assert (first.id, first.attempt) == (again.id, again.attempt)


async def test_what_an_earlier_process_of_the_gang_held_counts_as_a_failed_attempt(stores: Stores) -> None:
    """Or a task that kills its gang would be tried for ever."""
    async with open_door(stores) as door:
        task = await submitted(stores)
        first, second = await claimed_by(door.api("g1")), await claimed_by(door.api("g1"))
        assert (first.attempt, second.attempt) == (1, 2)
        assert (await stores.tasks.get(task.id)).failures == 1


async def test_a_later_call_takes_the_place_of_one_that_is_still_open(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        old = asyncio.create_task(api.claim(loading=False, wait_s=3))
        await held_open(stores)
        before = await stores.link.client.get(stores.link.keys.claiming("g1"))
        new = asyncio.create_task(api.claim(loading=False, wait_s=30))

        async def superseded() -> bool:
            return await stores.link.client.get(stores.link.keys.claiming("g1")) != before

        await wait_until(superseded, "the second claim")
        task = await submitted(stores)
        claimed = await asyncio.wait_for(new, patient(10))
        assert claimed is not None and claimed.id == task.id
        assert await old is None


async def test_a_gang_that_hung_up_gets_no_task(stores: Stores) -> None:
    async with open_door(stores) as door:
        claiming = asyncio.create_task(door.api("g1").claim(loading=False, wait_s=30))
        await held_open(stores)
        claiming.cancel()
        await asyncio.wait({claiming})
        await door.apis[0].aclose()
        task = await submitted(stores)
        claimed = await door.api("g2").claim(loading=False, wait_s=10)
        assert claimed is not None and claimed.id == task.id
        assert (await stores.tasks.get(task.id)).gang == "g2"


async def test_a_gateway_that_stops_waits_for_no_claim(stores: Stores) -> None:
    async with open_door(stores) as door:
        claiming = asyncio.create_task(door.api("g1").claim(loading=False, wait_s=30))
        await held_open(stores)
        door.gateway.inside.videos.stop()
        assert await asyncio.wait_for(claiming, patient(10)) is None


async def test_what_is_given_back_waits_again_and_its_attempt_can_write_nothing(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        await submitted(stores)
        claimed = await claimed_by(api)
        await api.give_back("it broke", counts=True)
        task = await stores.tasks.get(claimed.id)
        assert (task.state, task.failures) == (State.QUEUED, 1)
        with pytest.raises(Stale):
            await api.attempt(claimed).report(STEP)
        with pytest.raises(Stale):
            await api.attempt(claimed).put("preview-1.webp", b"late")
        assert [blob async for blob in stores.blobs.list(f"tasks/{claimed.id}/")] == []


async def test_a_finish_whose_answer_was_lost_is_not_refused_when_it_comes_again(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        await submitted(stores)
        claimed = await claimed_by(api)
        for _ in range(2):
            await api.attempt(claimed).report(FinishTold(bytes=5))
        assert await api.attempt(claimed).over() is State.COMPLETED
        with pytest.raises(Stale):
            await api.attempt(claimed).report(FinishTold(bytes=6))


async def test_reports_that_come_together_go_in_one_call(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        await submitted(stores)
        claimed = await claimed_by(api)
        attempt, calls = api.attempt(claimed), list[int]()
        report = attempt._report

        async def counted(events: object) -> None:
            calls.append(len(events))  # type: ignore[arg-type]
            await report(events)  # type: ignore[arg-type]

        attempt._report = counted  # type: ignore[method-assign]
        steps = [ProgressTold(stage=Stage.DENOISING, step=n, of=9) for n in range(8)]
        await asyncio.gather(*(attempt.report(step) for step in steps))
        assert calls == [1, 7]
        assert (await stores.tasks.get(claimed.id)).step == 7


async def test_a_cancelled_task_is_dropped_at_the_next_report(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        task = await submitted(stores)
        claimed = await claimed_by(api)
        await stores.tasks.apply(task.id, Cancelled(1.0))
        with pytest.raises(Stale, match="cancelled"):
            await api.attempt(claimed).renew()
        assert await api.attempt(claimed).over() is State.CANCELLED


async def test_leaving_gives_back_what_nobody_knows_of(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        await submitted(stores)
        claimed = await claimed_by(api)
        await api.leave()
        task = await stores.tasks.get(claimed.id)
        assert (task.state, task.failures) == (State.QUEUED, 0)
        assert await stores.queue.holdings(MODEL) == {}


async def test_a_closed_gang_keeps_what_it_holds_and_gets_nothing_more(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        await submitted(stores)
        claimed = await claimed_by(api)
        assert await api.held(open=False) == 1
        await api.attempt(claimed).report(InterruptionTold(reason="drained", counts=False))
        assert await api.held() == 0
        assert await api.claim(loading=False, wait_s=0) is None
        assert await api.held(open=True) == 0
        assert await api.claim(loading=False, wait_s=0) is not None


async def calls(api: GangApi, token: str) -> dict[str, int]:
    """The status of each call with this token."""
    one = {"bytes": 1}
    bodies: dict[tuple[str, str], object] = {
        ("POST", ""): {"model": MODEL},
        ("POST", "/claim"): {},
        ("POST", "/report"): {},
        ("POST", "/over"): {},
        ("POST", "/give-back"): {"reason": "x"},
        ("POST", "/door"): {"open": False},
        ("POST", "/tell"): {"since": 1.0},
        ("POST", "/leave"): {},
        ("POST", "/objects/video.mp4"): one,
        ("POST", "/objects/video.mp4/complete"): {**one, "sha256": "0" * 64},
        ("GET", "/objects/checkpoint"): None,
    }
    headers = {"authorization": f"Bearer {token}"}
    answers: dict[str, int] = {}
    for (method, path), body in bodies.items():
        answer = await api._client.request(method, f"/v1/gangs{path}", json=body, headers=headers)
        answers[f"{method} {path}"] = answer.status_code
    digest = {"content-digest": "sha-256=:" + "A" * 43 + "=:"}
    put = await api._client.put("/v1/gangs/objects/video.mp4/0", content=b"x", headers={**headers, **digest})
    return {**answers, "PUT": put.status_code}


GANG_CALLS = {"POST /claim", "POST /give-back", "POST /door", "POST /tell", "POST /leave"}
TASK_CALLS = {
    *("POST /report", "POST /over", "POST /objects/video.mp4", "POST /objects/video.mp4/complete"),
    *("GET /objects/checkpoint", "PUT"),
}


async def stolen(door: Door) -> dict[str, str]:
    """Credentials that are good for something else."""
    good = door.token("thief")
    body, _, signature = good.partition(".")
    return {
        "nobody's": "x",
        "a user's key": door.gateway.token,
        "forged": f"{body}.{'0' * len(signature)}",
        "altered": f"{body[:-2]}AA.{signature}",
    }


async def test_no_stolen_credential_does_anything_at_the_gangs_calls(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        for name, token in (await stolen(door)).items():
            answers = await calls(api, token)
            assert set(answers.values()) <= {401, 403}, (name, answers)


async def test_a_gangs_token_does_nothing_elsewhere(stores: Stores) -> None:
    async with open_door(stores) as door:
        token = {"authorization": f"Bearer {door.token('g1')}"}
        async with httpx.AsyncClient(base_url=door.base, headers=token, timeout=30) as http:
            for method, path in (
                ("GET", "/v1/videos"),
                ("POST", "/v1/videos"),
                ("GET", "/workers"),
                ("POST", "/workers/register"),
                ("POST", "/v1/gangs"),
                ("GET", "/v1/keys"),
                ("GET", "/v1/usage"),
            ):
                answer = await http.request(method, path, json={} if method == "POST" else None)
                assert answer.status_code == 401, (method, path, answer.text)


async def test_tokens_of_gangs_and_of_attempts_are_good_for_their_own_calls_alone(stores: Stores) -> None:
    async with open_door(stores) as door:
        await submitted(stores)
        api = door.api("g1")
        claimed = await claimed_by(api)
        by_attempt = await calls(api, claimed.token)
        assert {name for name, status in by_attempt.items() if status in (401, 403)} == {*GANG_CALLS, "POST "}
        by_gang = await calls(api, door.token("g1"))
        assert {name for name, status in by_gang.items() if status in (401, 403)} == {*TASK_CALLS, "POST "}


async def test_a_gang_can_do_nothing_to_the_task_of_another(stores: Stores) -> None:
    """Its own attempt's token names its own task; a second gang's names none of the first's."""
    async with open_door(stores) as door:
        await submitted(stores)
        mine = await claimed_by(door.api("g1"))
        thief = door.api("g2")
        await thief.give_back("not mine", counts=True)
        assert await thief.held(open=False) == 0
        await thief.leave()
        assert await thief.claim(loading=False, wait_s=0) is None
        task = await stores.tasks.get(mine.id)
        assert (task.state, task.gang, task.failures) == (State.IN_PROGRESS, GangId("g1"), 0)
        await door.apis[0].attempt(mine).report(STEP)


async def test_a_gang_of_one_model_claims_nothing_of_another(stores: Stores) -> None:
    async with open_door(stores) as door:
        await submitted(stores)
        assert await door.api("g1", "wan-tiny-ti2v").claim(loading=False, wait_s=0) is None


async def test_a_revoked_key_takes_its_gangs_along(stores: Stores) -> None:
    async with open_door(stores) as door:
        api = door.api("g1")
        await submitted(stores)
        claimed = await claimed_by(api)
        await stores.tenants.keys.revoke(door.key)
        door.gateway.inside.keys.drop(door.key)
        await wait_until(lambda: is_refused(api), "the token to be of no more use")
        with pytest.raises(Stale):
            await api.attempt(claimed).report(STEP)
        with pytest.raises(Unauthorized):
            await api.claim(loading=False, wait_s=0)


async def test_a_gang_of_a_worker_claims_only_while_it_is_ordered_and_ends_with_its_worker(
    stores: Stores,
) -> None:
    worker = WorkerId("w-1")
    async with open_door(stores) as door:
        await stores.fleet.workers.enrol(Enrolment(worker, "box", "tunnel:", "d" * 64, key=door.key))
        tokens = door.gateway.inside.videos.gangs.tokens
        api = GangApi(door.base, tokens.token(GangRight(worker, GangId("m-1"), MODEL)))
        door.apis.append(api)
        model = Model(MODEL, EngineKind.VIDEO, "w", video=VideoPart(FAMILIES[MODEL]))
        await submitted(stores)
        assert await stores.mutex.hold("fleet", "test", 60)

        async def order(*replicas: str) -> None:
            orders = tuple(ReplicaOrder(ReplicaId(one), model, (), Want.READY) for one in replicas)
            assert await stores.fleet.manager_state.publish(
                "fleet", "test", Publication(orders={worker: OrderSheet(1, orders)})
            )

        await order("m-2")
        assert await api.claim(loading=False, wait_s=0) is None
        await order("m-1")
        assert await api.claim(loading=False, wait_s=0) is not None
        await stores.fleet.workers.evict(worker)
        await wait_until(lambda: is_refused(api), "the token to end with its worker")


async def test_the_page_about_the_protocol_shows_a_worker_that_works(stores: Stores, tmp_path: Path) -> None:
    """In a thread, as a stranger's program would run elsewhere."""
    [shown] = [b for b in blocks(ROOT / "docs" / "worker-protocol.md") if b.language == "python"]
    program = tmp_path / "shown.py"
    program.write_text(shown.text)
    names = runpy.run_path(str(program))
    async with open_door(stores) as door:
        task = await submitted(stores, steps=3)
        key = await door.gateway.key("default", Role.WORKER)
        await asyncio.to_thread(names["render"], door.base, key, MODEL)
        ended = await stores.tasks.get(task.id)
        assert ended.failure is not None and ended.failure.message == "this worker only counts"
        assert ended.step == 3
