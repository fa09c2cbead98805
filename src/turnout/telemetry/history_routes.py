"""For operators: what waits now, and how the last hours were."""

from typing import Annotated

from fastapi import APIRouter, Query

from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.telemetry.history import KEPT_MINUTES
from turnout.telemetry.history_json import HistoryColumns, HistoryShown, QueueList, QueueRow
from turnout.tenants.auth import AdminDep

_MAX_ROWS = 500

router = APIRouter(tags=["operations"], responses=documented(400, 401, 403, 500, 503))


@router.get("/v1/queues", summary="What waits, by model and tenant")
async def queues(admin: AdminDep, gateway: GatewayDep) -> QueueList:
    backlog = gateway.stores.backlog
    now = await backlog.now()
    rows = [
        QueueRow(
            model=model,
            tenant=part.tenant,
            waiting=part.waiting,
            running=part.running,
            oldest_s=max(0.0, now - part.since),
        )
        for model in await backlog.models()
        for part in await backlog.by_tenant(model)
    ]
    rows.sort(key=lambda row: -row.oldest_s)
    return QueueList(data=rows[:_MAX_ROWS])


@router.get("/v1/history", summary="Figures of the last hours")
async def history(
    admin: AdminDep, gateway: GatewayDep, minutes: Annotated[int, Query(ge=1, le=KEPT_MINUTES)] = 60
) -> HistoryShown:
    at, columns = await gateway.telemetry.history.read(minutes)
    return HistoryShown(at=at, columns=HistoryColumns(**columns))
