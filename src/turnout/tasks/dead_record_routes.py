"""Records that could not be read, for admins: list, look, drop, and submit a task of them again."""

from dataclasses import replace

from fastapi import APIRouter

from turnout.errors import Conflict, NotFound
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.dead_json import DeadRecordDropped, DeadRecordList, DeadRecordShown, DeadTaskRetried
from turnout.tasks.submission_headers import SubmissionHeaders
from turnout.tasks.task_records import TASK
from turnout.tasks.video_json import RemixRequest
from turnout.telemetry.log import get_log
from turnout.tenants.auth import AdminDep

router = APIRouter(
    prefix="/v1/dead-records", tags=["operations"], responses=documented(400, 401, 403, 500, 503)
)


@router.get("", summary="Records that could not be read")
async def index(admin: AdminDep, gateway: GatewayDep) -> DeadRecordList:
    names = await gateway.stores.dead_records.names()
    return DeadRecordList(data=[DeadRecordShown(kind=kind, name=name) for kind, name in names])


@router.get("/{kind}/{name}", responses=documented(404), summary="Look at one")
async def show(kind: str, name: str, admin: AdminDep, gateway: GatewayDep) -> DeadRecordShown:
    content = await _content(gateway, kind, name)
    return DeadRecordShown(kind=kind, name=name, content=content.decode(errors="backslashreplace"))


@router.delete("/{kind}/{name}", responses=documented(404), summary="Forget one")
async def drop(kind: str, name: str, admin: AdminDep, gateway: GatewayDep) -> DeadRecordDropped:
    if not await gateway.stores.dead_records.drop(kind, name):
        raise _not_found(kind, name)
    get_log().info("dead record dropped", kind=kind, name=name, by=admin.id)
    return DeadRecordDropped(kind=kind, name=name)


@router.post("/task/{name}/retry", responses=documented(404, 409, 429), summary="Submit a task again")
async def retry(name: str, admin: AdminDep, gateway: GatewayDep) -> DeadTaskRetried:
    """For its owner, under a new id, with the same settings: for records that this version can read and another one
    could not."""
    content = await _content(gateway, "task", name)
    try:
        source = TASK.load(content)
    except (ValueError, RecursionError) as err:
        raise Conflict("This version cannot read the record either.", "name", "record_unreadable") from err
    owner = replace(admin, tenant=source.tenant)
    headers = SubmissionHeaders(source.priority, f"dead-{name}")  # twice is once
    request = RemixRequest(prompt=source.spec.prompt, webhook_url=source.webhook_url)
    task, _ = await gateway.videos.submissions.remix(source, request, owner, headers)
    await gateway.stores.dead_records.drop("task", name)
    get_log().info("dead record submitted again", name=name, task=task.id, by=admin.id)
    return DeadTaskRetried(name=name, video=task.id)


async def _content(gateway: Gateway, kind: str, name: str) -> bytes:
    found = await gateway.stores.dead_records.find(kind, name)
    if found is None:
        raise _not_found(kind, name)
    return found


def _not_found(kind: str, name: str) -> NotFound:
    return NotFound(f"There is no dead {kind[:50]} {name[:100]}.", "name", "record_not_found")
