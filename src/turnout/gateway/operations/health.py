"""Whether this process lives, and whether the parts it needs answer."""

import asyncio
from collections.abc import Awaitable

from fastapi import APIRouter
from starlette.responses import JSONResponse

from turnout.domain.errors import NotFound, TurnoutError, Unavailable
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.observe import get_log
from turnout.schemas.health_json import GangView, HealthAnswer, Readiness

_DEADLINE_S = 3.0
_PROBE = "ready/probe"  # need not exist: a store that can say so is up

router = APIRouter(tags=["health"])


@router.get("/health", summary="The process is up")
async def health() -> HealthAnswer:
    return HealthAnswer()


@router.get(
    "/ready",
    responses={503: {"model": Readiness}},
    response_model=Readiness,
    summary="Requests can be served",
)
async def ready(gateway: GatewayDep) -> JSONResponse:
    redis, blobs, manager = await asyncio.gather(
        _state(gateway.stores.backlog.totals()),
        _state(_blobs_answer(gateway)),
        _state(_manager_works(gateway)),
    )
    fine = redis == blobs == "ok"  # a gateway without a manager still takes, shows and delivers tasks
    found = {"redis": redis, "blobs": blobs, "manager": manager}
    gangs = await _gangs(gateway) if redis == "ok" else []
    answer = Readiness(status="ready" if fine else "not_ready", parts=found, gangs=gangs)
    return JSONResponse(answer.model_dump(), 200 if fine else 503)


async def _gangs(gateway: Gateway) -> list[GangView]:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            found = await gateway.stores.gangs.all()
    except (TimeoutError, Unavailable):
        return []
    return [
        GangView(
            model=gang.model,
            state="formed" if gang.formed else "starting",
            ranks=len(gang.ranks),
            nodes=len({rank.node for rank in gang.ranks if rank.node}),
        )
        for gang in sorted(found.values(), key=lambda gang: gang.gang)
    ]


async def _blobs_answer(gateway: Gateway) -> None:
    try:
        await gateway.stores.blobs.head(_PROBE)
    except NotFound:
        return


async def _manager_works(gateway: Gateway) -> None:
    if await gateway.stores.mutex.holder("manager") is None:
        raise Unavailable("no manager is at work: leases, expiry and webhooks wait")


async def _state(asked: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await asked
        return "ok"
    except TimeoutError:
        return f"did not answer within {_DEADLINE_S:g} s"
    except TurnoutError as err:
        # Anyone may ask: what exactly failed, and where it lies, is for the log.
        get_log().warning("part not ready", reason=err.message)
        return "did not answer"
