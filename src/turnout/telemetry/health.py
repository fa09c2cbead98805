"""Whether this process lives, and whether the parts it needs answer."""

import asyncio

from fastapi import APIRouter
from starlette.responses import JSONResponse

from turnout.errors import Unavailable
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.telemetry.health_json import GangView, HealthAnswer, Readiness

_DEADLINE_S = 3.0

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
    found = await gateway.telemetry.readiness.parts()
    fine = all(state == "ok" for state in found.values())
    gangs = await _gangs(gateway) if found["redis"] == "ok" else []
    answer = Readiness(status="ready" if fine else "not_ready", parts=found, gangs=gangs)
    return JSONResponse(answer.model_dump(), 200 if fine else 503)


async def _gangs(gateway: Gateway) -> list[GangView]:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            found = await gateway.workers.gangs.awake()
    except (TimeoutError, Unavailable):
        return []
    return [
        GangView(
            model=gang.model,
            state="formed" if gang.formed else "starting",
            ranks=gang.ranks,
            nodes=len(gang.nodes),
        )
        for gang in found
    ]
