"""Whose video a request may open: the caller's own by its key, or the one that the token in its URL was signed for."""

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials

from turnout.errors import NotFound
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.tasks.signed_urls import UrlPurpose
from turnout.tasks.task_rules import Task, TaskId
from turnout.tasks.video_routes import own_task
from turnout.tenants.auth import BEARER, identify_user

_Token = Annotated[
    str | None,
    Query(max_length=200, description="From a signed URL; then no key is needed, and none is looked at."),
]


class OpenedTask(NamedTuple):
    """`key` is the id of the caller's key; None for a signed URL."""

    task: Task
    key: str | None


def _opened_for(purpose: UrlPurpose) -> Callable[..., Awaitable[OpenedTask]]:
    async def opened(
        video_id: str,
        request: Request,
        gateway: GatewayDep,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
        token: _Token = None,
    ) -> OpenedTask:
        if token is not None:
            return OpenedTask(await _signed_for(gateway, TaskId(video_id), purpose, token), None)
        key = await identify_user(request, gateway, credentials)
        return OpenedTask(await own_task(gateway, key, video_id), key.id)

    return opened


async def _signed_for(gateway: Gateway, task_id: TaskId, purpose: UrlPurpose, token: str) -> Task:
    """Wrong, expired, revoked, and the video is gone: all look alike."""
    unknown = NotFound("This URL is not valid, or no more.", "token", "url_not_valid")
    issued_at = gateway.urls.issued_at(task_id, purpose, token, gateway.now())
    if issued_at is None or issued_at <= await gateway.stores.shares.urls_revoked_at(task_id):
        raise unknown
    try:
        return await gateway.stores.tasks.get(task_id)
    except NotFound as err:
        raise unknown from err


ContentDep = Annotated[OpenedTask, Depends(_opened_for(UrlPurpose.CONTENT))]
EventsDep = Annotated[OpenedTask, Depends(_opened_for(UrlPurpose.EVENTS))]
