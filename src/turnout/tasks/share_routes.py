"""Links to one video for people without a key: make, list, revoke, and what they open.

The token comes in a header and stands in the fragment of the page's link, so that no log has it.
"""

import secrets
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from turnout.errors import Limited, NotFound
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.share_json import SharedVideo, ShareList, ShareShown, VideoShareRequest, share_of
from turnout.tasks.share_rules import MAX_SHARES, Share, VideoLink, new_share, split_share_token
from turnout.tasks.signed_access import open_by_link
from turnout.tasks.task_rules import Task
from turnout.tasks.video_files import FILE_ANSWERS, Variant, object_of, send_file
from turnout.tasks.video_json import video_of
from turnout.tasks.video_routes import own_task
from turnout.telemetry.log import get_log
from turnout.tenants.auth import UserDep

_MAX_TOKEN_CHARS = 300

router = APIRouter(tags=["shares"], responses=documented(400, 404, 500, 503))


@router.post(
    "/v1/videos/{video_id}/shares",
    responses=documented(401, 403, 409, 413, 415, 429),
    openapi_extra=json_body(VideoShareRequest),
    summary="Share a video",
)
async def create(video_id: str, request: Request, caller: UserDep, gateway: GatewayDep) -> ShareShown:
    """Anyone who has the link sees this video, until it expires or is revoked."""
    body = await read_json(request, VideoShareRequest)
    task = await own_task(gateway, caller, video_id)
    object_of(task, Variant.VIDEO)
    store, now = gateway.stores.share_links, gateway.now()
    made = await store.of(task.id)
    ended = [share.id for share in made if share.expires_at <= now]
    await store.remove(task.id, *ended)
    if len(made) - len(ended) >= MAX_SHARES:
        raise Limited(f"A video has at most {MAX_SHARES} links: revoke one.", code="too_many_shares")
    share, token = new_share(
        secrets.token_hex(6), secrets.token_urlsafe(32), task.id, now + body.expires_in_s
    )
    await store.add(share)
    get_log().info("video shared", task=task.id, share=share.id, by=caller.id)
    return share_of(share, token)


@router.get("/v1/videos/{video_id}/shares", responses=documented(401, 403), summary="List its links")
async def index(video_id: str, caller: UserDep, gateway: GatewayDep) -> ShareList:
    task = await own_task(gateway, caller, video_id)
    made = await gateway.stores.share_links.of(task.id)
    return ShareList(data=[share_of(share) for share in made if share.expires_at > gateway.now()])


@router.delete(
    "/v1/videos/{video_id}/shares/{share_id}",
    status_code=204,
    response_class=Response,
    responses=documented(401, 403),
    summary="Revoke a link",
)
async def revoke(video_id: str, share_id: str, caller: UserDep, gateway: GatewayDep) -> Response:
    task = await own_task(gateway, caller, video_id)
    if not await gateway.stores.share_links.remove(task.id, share_id):
        raise _not_found()
    get_log().info("share revoked", task=task.id, share=share_id, by=caller.id)
    return Response(status_code=204)


@router.delete(
    "/v1/videos/{video_id}/shares",
    status_code=204,
    response_class=Response,
    responses=documented(401, 403),
    summary="Revoke all links and signed URLs",
)
async def revoke_all(video_id: str, caller: UserDep, gateway: GatewayDep) -> Response:
    task, shares = await own_task(gateway, caller, video_id), gateway.stores.share_links
    await shares.revoke_urls(task.id, gateway.now())
    await shares.remove(task.id, *(share.id for share in await shares.of(task.id)))
    get_log().info("all shares revoked", task=task.id, by=caller.id)
    return Response(status_code=204)


_Token = Annotated[str, Header(alias="X-Turnout-Share", max_length=_MAX_TOKEN_CHARS)]


@router.get("/v1/shared", responses=documented(429), summary="What a link shows")
async def shared(request: Request, gateway: GatewayDep, token: _Token) -> SharedVideo:
    share, task = await _opened(request, gateway, token)
    video = video_of(task, gateway.videos.settings.retention_s)
    return SharedVideo(
        prompt=video.prompt, size=video.size, seconds=video.seconds, expires_at=int(share.expires_at)
    )


@router.get("/v1/shared/content", responses=FILE_ANSWERS, response_class=Response, summary="Its file")
async def content(
    request: Request,
    gateway: GatewayDep,
    token: _Token,
    variant: Annotated[Variant, Query()] = Variant.VIDEO,
) -> Response:
    _, task = await _opened(request, gateway, token)
    return await send_file(request, gateway, task, variant)


async def _opened(request: Request, gateway: Gateway, token: str) -> tuple[Share, Task]:
    """Wrong, expired, revoked, and the video is gone: all look alike."""
    parts = split_share_token(token)
    if parts is None:
        raise _not_found()
    task_id, share_id, secret = parts
    share = await gateway.stores.share_links.find(task_id, share_id)
    if share is None or not share.opens(secret, gateway.now()):
        raise _not_found()
    link = VideoLink(task_id, share.expires_at, share=share.id)
    task = await open_by_link(request, gateway, link, _not_found())
    try:
        object_of(task, Variant.VIDEO)
    except NotFound as err:
        raise _not_found() from err
    return share, task


def _not_found() -> NotFound:
    return NotFound("There is no such share link, or no more.", code="share_not_found")
