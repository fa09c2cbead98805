"""Ends tasks for their owners, and removes them with all that they have."""

from turnout.errors import Stale
from turnout.stores import Stores
from turnout.tasks.object_keys import of_task
from turnout.tasks.task_rules import Cancelled, Task
from turnout.telemetry.log import get_log


async def cancel_task(stores: Stores, task: Task, now: float) -> Task:
    """The task once it has ended: cancelled now, or however it ended before."""
    if task.ended:
        return task
    try:
        task = await stores.tasks.apply(task.id, Cancelled(now))
        get_log().info("task cancelled", task=task.id, tenant=task.tenant)
        return task
    except Stale:
        return await stores.tasks.get(task.id)


async def remove_task(stores: Stores, task: Task, now: float) -> None:
    """Cancelled first, if it has not ended; its links open nothing any more."""
    task = await cancel_task(stores, task, now)
    # Objects first: if this process dies in between, the caller still sees the task and can ask again.
    await stores.blobs.delete([blob.key async for blob in stores.blobs.list(of_task(task.id))])
    await stores.share_links.remove(task.id, *(share.id for share in await stores.share_links.of(task.id)))
    await stores.tasks.forget(task)
    get_log().info("task deleted", task=task.id, tenant=task.tenant)
