"""The queue of all tenants over HTTP, for admins: its order, and cancelling any task."""

import asyncio

from fastapi import APIRouter

from turnout.errors import Conflict, NotFound, no_such
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.queue_json import Queue, QueuedShown, queued_of
from turnout.tasks.task_removal import cancel_task
from turnout.tasks.task_rules import State, Task, TaskId
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep

router = APIRouter(prefix="/v1/queues/tasks", tags=["operations"], responses=documented(401, 403, 500, 503))

_MOST = 200
_AT_ONCE = 8


@router.get("", summary="Everybody's unfinished tasks, in the order in which they are served")
async def index(admin: AdminDep, gateway: GatewayDep) -> Queue:
    models = await gateway.stores.backlog.models()
    figures = await gateway.stores.backlog.all_figures(models)
    unfinished = {model: figures[model].length for model in models if figures[model].length}
    few = asyncio.Semaphore(_AT_ONCE)

    async def shown(task: Task) -> QueuedShown:
        async with few:
            position = await gateway.stores.tasks.position(task)
            eta_s = await gateway.videos.estimates.of_task(task, position, gateway.now())
            return queued_of(task, position, eta_s)

    found: list[QueuedShown] = []
    for model in unfinished:
        tasks = await gateway.stores.backlog.oldest(model, _MOST - len(found))
        rows = await asyncio.gather(*(shown(task) for task in tasks if not task.ended))
        found += sorted(rows, key=lambda row: (row.status is State.QUEUED, row.queue_position or 0, row.id))
        if len(found) >= _MOST:
            break
    return Queue(data=found, unfinished=unfinished)


@router.post("/{video_id}/cancel", responses=documented(404, 409), summary="Stop anybody's task")
async def cancel(video_id: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> QueuedShown:
    """Its owner sees it cancelled."""
    try:
        task = await gateway.stores.tasks.get(TaskId(video_id[:100]))
    except NotFound as err:
        raise no_such("video", video_id, "video_id") from err
    await audit.record(admin, AuditAction.TASK_CANCELLED, task.id, tenant=task.tenant)
    task = await cancel_task(gateway.stores, task, gateway.now())
    if task.state is not State.CANCELLED:
        raise Conflict(f"The video is {task.state} already.", "video_id", "video_ended")
    return queued_of(task, None, None)
