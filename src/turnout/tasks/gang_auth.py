"""Which gang calls a route: dependencies that take a gang's token, or that of one of its attempts."""

from typing import Annotated

from fastapi import Depends, Header

from turnout.errors import Forbidden
from turnout.gateway.gateway import GatewayDep
from turnout.tasks.gang_tokens import GangRight


async def _gang(gateway: GatewayDep, authorization: Annotated[str | None, Header()] = None) -> GangRight:
    right = await gateway.videos.gangs.read(authorization)
    if right.task is not None:
        raise Forbidden("A token for one attempt cannot be used for this.", code="role_not_allowed")
    return right


async def _attempt(gateway: GatewayDep, authorization: Annotated[str | None, Header()] = None) -> GangRight:
    right = await gateway.videos.gangs.read(authorization)
    if right.task is None:
        raise Forbidden("Use the token that came with the task.", code="role_not_allowed")
    return right


GangDep = Annotated[GangRight, Depends(_gang)]
AttemptDep = Annotated[GangRight, Depends(_attempt)]
