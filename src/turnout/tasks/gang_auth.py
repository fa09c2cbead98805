"""Which gang calls a route: dependencies that take a gang's token, or that of one of its attempts."""

from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from turnout.errors import Forbidden
from turnout.gateway.gateway import GatewayDep
from turnout.tasks.gang_tokens import GangRight

_TOKEN = HTTPBearer(
    auto_error=False,
    scheme_name="GangToken",
    description="A gang's token, which came with a worker's orders or from POST /v1/gangs, or that of a claimed task.",
)
_Shown = Annotated[HTTPAuthorizationCredentials | None, Depends(_TOKEN)]


async def _gang(gateway: GatewayDep, shown: _Shown) -> GangRight:
    right = await gateway.videos.gangs.read(shown.credentials if shown else "")
    if right.task is not None:
        raise Forbidden("A token for one attempt cannot be used for this.", code="role_not_allowed")
    return right


async def _attempt(gateway: GatewayDep, shown: _Shown) -> GangRight:
    right = await gateway.videos.gangs.read(shown.credentials if shown else "")
    if right.task is None:
        raise Forbidden("Use the token that came with the task.", code="role_not_allowed")
    return right


GangDep = Annotated[GangRight, Depends(_gang)]
AttemptDep = Annotated[GangRight, Depends(_attempt)]
