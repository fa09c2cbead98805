"""Gangs over HTTP: they claim a task, report on it, give it back, and tell of themselves. A gang only calls out.

Any gateway will do for any call: all that lasts is in Redis. `docs/worker-protocol.md` describes these calls for whoever writes
a worker of their own.
"""

import asyncio
import secrets
import time

from fastapi import APIRouter, BackgroundTasks, Request, Response

from turnout.errors import no_such
from turnout.fleet.gang_rules import GangReport
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks import gang_attempts
from turnout.tasks.gang_auth import AttemptDep, GangDep
from turnout.tasks.gang_messages import (
    AttemptOver,
    ClaimAnswer,
    Claiming,
    ExpectedTold,
    FinishTold,
    GangDoor,
    GangHolding,
    GangOpening,
    GangTold,
    GivingBack,
    OpenedGang,
    ReportAnswer,
    TaskReport,
)
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import GangId, Task
from turnout.tasks.time_estimates import TimeEstimates
from turnout.tenants.auth import WorkerDep

router = APIRouter(
    prefix="/v1/gangs", tags=["gangs"], responses=documented(400, 401, 403, 413, 415, 500, 503)
)


@router.post(
    "", openapi_extra=json_body(GangOpening), responses=documented(404), summary="Open a gang of one's own"
)
async def open_gang(request: Request, key: WorkerDep, gateway: GatewayDep) -> OpenedGang:
    """For a gang that no worker runs: started by torchrun, Kubernetes or a script. The token ends with the key."""
    body = await read_json(request, GangOpening)
    model = await gateway.catalog.find(body.model)
    if model is None or model.video is None:
        raise no_such("model", body.model)
    gang = GangId(f"{body.name}-{secrets.token_hex(4)}")
    return OpenedGang(gang=gang, token=gateway.videos.gangs.tokens.token(GangRight(key.id, gang, model.name)))


@router.post("/claim", openapi_extra=json_body(Claiming), summary="Claim the next task")
async def claim(request: Request, right: GangDep, gateway: GatewayDep) -> ClaimAnswer:
    body, videos = await read_json(request, Claiming), gateway.videos
    gone = asyncio.ensure_future(_wait_gone(request))
    try:
        task = await gang_attempts.wait_claim(
            gateway.stores,
            gang_attempts.ClaimParts(videos.gangs, videos.arrivals, videos.settings.limits),
            right,
            asked=body,
            gone=gone,
        )
    finally:
        gone.cancel()
    if task is None:
        return ClaimAnswer(task=None)
    token = videos.gangs.tokens.token(right.for_attempt(task))
    expected = await _expected(videos.estimates, task, loading=body.loading)
    mark = videos.settings.video_mark_by if videos.settings.video_mark else None
    return ClaimAnswer(task=gang_attempts.told(task, token, videos.settings.lease_s, expected, mark))


async def _expected(estimates: TimeEstimates, task: Task, *, loading: bool) -> ExpectedTold | None:
    times = await estimates.expected(task)
    if times is None:
        return None
    return ExpectedTold(
        loading_s=await estimates.loading_s(task.model) if loading else 0.0,
        encode_s=times.encode_s,
        guided_step_s=times.guided_step_s,
        step_s=times.step_s,
        finish_s=times.finish_s,
    )


async def _wait_gone(request: Request) -> None:
    """Until the client has hung up. Its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post("/report", openapi_extra=json_body(TaskReport), summary="Report on the task, renew its lease")
async def report(
    request: Request, right: AttemptDep, gateway: GatewayDep, after: BackgroundTasks
) -> ReportAnswer:
    body = await read_json(request, TaskReport)
    answer, replaced = await gang_attempts.hear(
        gateway.stores, gateway.videos.submissions.check, right, body.events
    )
    if (
        answer.stale is None
        and right.task is not None
        and any(isinstance(e, FinishTold) for e in body.events)
    ):
        after.add_task(gateway.videos.estimates.learn, right.task)
    if replaced:
        after.add_task(gateway.stores.blobs.delete, replaced)  # what is left by a failure goes with the sweep
    return answer


@router.post("/over", summary="Say that an attempt is over")
async def over(right: AttemptDep, gateway: GatewayDep) -> AttemptOver:
    """Nothing is written for it any more. Objects that nobody needs are removed."""
    return AttemptOver(state=await gang_attempts.end_attempt(gateway.stores, right))


@router.post(
    "/give-back", status_code=204, openapi_extra=json_body(GivingBack), summary="Give back what a gang holds"
)
async def give_back(request: Request, right: GangDep, gateway: GatewayDep) -> Response:
    body = await read_json(request, GivingBack)
    await gang_attempts.put_back(gateway.stores, right, body.reason, counts=body.counts)
    return Response(status_code=204)


@router.post(
    "/door", openapi_extra=json_body(GangDoor), summary="Close a gang to new tasks, or ask what it holds"
)
async def door(request: Request, right: GangDep, gateway: GatewayDep) -> GangHolding:
    """Once it is closed, what it holds only becomes less."""
    body, queue = await read_json(request, GangDoor), gateway.stores.queue
    if body.open is not None:
        await (queue.open if body.open else queue.close)(right.gang)
    return GangHolding(held=(await queue.holdings(right.model)).get(right.gang, 0))


@router.post("/tell", status_code=204, openapi_extra=json_body(GangTold), summary="Tell of a gang")
async def tell(request: Request, right: GangDep, gateway: GatewayDep) -> Response:
    """By a gang that no worker reports of. An old word is forgotten."""
    body = await read_json(request, GangTold)
    told = GangReport(
        right.gang,
        right.model,
        body.slot,
        body.since,
        time.time(),
        body.formation,
        body.ranks,
        body.ready_at,
        body.trouble,
    )
    await gateway.stores.fleet.gangs.put(told)
    return Response(status_code=204)


@router.post("/leave", status_code=204, summary="Forget a gang")
async def leave(right: GangDep, gateway: GatewayDep) -> Response:
    await gang_attempts.forget_gang(gateway.stores, right)
    return Response(status_code=204)
