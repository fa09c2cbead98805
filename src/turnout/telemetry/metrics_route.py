"""The route that Prometheus scrapes."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.auth import MetricsDep

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus's text."},
        **documented(401, 403),
    },
    summary="Figures for Prometheus",
)
async def metrics(gateway: GatewayDep, _: MetricsDep) -> Response:
    return Response(await gateway.telemetry.metrics.scrape(), media_type=CONTENT_TYPE_LATEST)
