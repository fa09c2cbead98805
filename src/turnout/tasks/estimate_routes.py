"""How long a video would take, before anybody asks for it."""

from typing import Annotated

from fastapi import APIRouter, Query

from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.estimate_json import EstimateQuery, EstimateShown, shown
from turnout.tenants.auth import UserDep

router = APIRouter(tags=["models"], responses=documented(400, 401, 403, 404, 500, 503))


@router.get("/v1/models/{name}/estimate", summary="Estimate how long a video would take")
async def estimate(
    name: str, caller: UserDep, gateway: GatewayDep, asked: Annotated[EstimateQuery, Query()]
) -> EstimateShown:
    """What cannot be submitted is refused in the same words."""
    videos = gateway.videos
    spec = await videos.submissions.spec(name, asked.as_request(), image=asked.image)
    queue = await gateway.stores.backlog.figures(name)
    waiting = max(0, queue.length - queue.running)
    return shown(name, queue.length, await videos.estimates.of_spec(name, spec, waiting))
