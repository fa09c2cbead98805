"""Which video a request may open: one of the caller's own by its key, or the one that its link was made for."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Query, Request

from turnout.errors import NotFound
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.tasks.share_rules import VideoLink
from turnout.tasks.signed_urls import UrlPurpose
from turnout.tasks.task_rules import Task, TaskId
from turnout.tasks.video_routes import own_task
from turnout.tenants.auth import ShownKey, identify_user
from turnout.tenants.caller import caller_by
from turnout.tenants.open_connections import name_caller

_Token = Annotated[
    str | None,
    Query(max_length=200, description="From a signed URL; then no key is needed, and none is looked at."),
]


def _opened_for(purpose: UrlPurpose) -> Callable[..., Awaitable[Task]]:
    async def opened(
        video_id: str,
        request: Request,
        gateway: GatewayDep,
        _: Annotated[object, Depends(ShownKey())],
        token: _Token = None,
    ) -> Task:
        if token is None:
            return await own_task(gateway, await identify_user(request, gateway), video_id)
        unknown = NotFound("This URL is not valid, or no more.", "token", "url_not_valid")
        link = gateway.videos.urls.read(TaskId(video_id), purpose, token, gateway.now())
        if link is None or await gateway.stores.share_links.revoked([link]):
            raise unknown
        return await open_by_link(request, gateway, link, unknown)

    return opened


async def open_by_link(request: Request, gateway: Gateway, link: VideoLink, unknown: NotFound) -> Task:
    """The video of a link that is good; raises `unknown` if it is gone, so that all bad links look alike."""
    try:
        task = await gateway.stores.tasks.get(link.task)
    except NotFound as err:
        raise unknown from err
    name_caller(request, caller_by(link, task))
    return task


ContentDep = Annotated[Task, Depends(_opened_for(UrlPurpose.CONTENT))]
EventsDep = Annotated[Task, Depends(_opened_for(UrlPurpose.EVENTS))]
