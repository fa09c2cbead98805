"""The logs of the gateway's machine over HTTP, for admins: what `turnout logs` shows there."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from turnout.errors import Limited
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.telemetry.log_json import LogLines, log_lines_of
from turnout.telemetry.log_lines import read_end
from turnout.tenants.auth import AdminDep

router = APIRouter(tags=["operations"], responses=documented(400, 401, 403, 429, 500, 503))

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"


@router.get("/v1/logs", summary="The last lines of the logs, of a part or of a task")
async def index(
    admin: AdminDep,
    gateway: GatewayDep,
    part: Annotated[str | None, Query(pattern=_NAME, description="As `parts` names it.")] = None,
    task: Annotated[str | None, Query(pattern=_NAME, description="Lines of every part about it.")] = None,
    lines: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> LogLines:
    """Of the processes on the gateway's own machine. Where logs go elsewhere, as on Kubernetes, there are none."""
    reading = gateway.telemetry.log_reading
    if reading.locked():  # whoever asks again and again has one at a time
        raise Limited("Somebody else is reading the logs.", code="logs_busy", retry_after_s=1)
    async with reading:
        end = await asyncio.to_thread(read_end, gateway.telemetry.state_dir, part, task, lines)
    return log_lines_of(end)
