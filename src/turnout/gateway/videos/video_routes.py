"""The videos dialect: create, look, list, cancel, remix, delete. A tenant sees its own tasks only."""

import asyncio
import re
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from turnout.domain.errors import Conflict, NotFound, Stale
from turnout.domain.keys import Key
from turnout.domain.object_keys import of_task
from turnout.domain.tasks import Cancelled, State, Task, TaskId
from turnout.gateway.auth import UserDep
from turnout.gateway.bodies import read_asked, read_json
from turnout.gateway.catalog import catalog_of
from turnout.gateway.parts import Parts, PartsDep
from turnout.gateway.problems import documented
from turnout.gateway.videos.submission import TermsDep, submissions_of
from turnout.gateway.videos.time_estimates import TimeEstimates
from turnout.observe import get_log
from turnout.schemas.openai_json import (
    RemixRequest,
    TaskStarted,
    Video,
    VideoDeleted,
    VideoList,
    VideoRequest,
    schema_of,
    video_of,
)

_ID = re.compile(r"video_[A-Za-z0-9_-]{1,64}")
_POLL_AFTER_MS = "1000"
_POSITIONS_AT_ONCE = 8

router = APIRouter(tags=["videos"], responses=documented(400, 401, 403, 404, 500, 503))


def _video_body() -> dict[str, Any]:
    """How the OpenAPI document shows the body of a create."""
    schema = schema_of(VideoRequest)
    form = {**schema, "properties": dict(schema["properties"])}
    form["properties"]["input_reference"] = {
        "type": "string",
        "contentMediaType": "image/*",
        "format": "binary",
    }
    return _body({"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}})


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}, "parameters": _TERMS}


_TERMS: list[dict[str, Any]] = [
    {
        "name": "X-Turnout-Priority",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "enum": ["low", "normal", "high"]},
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
]


async def own_task(parts: Parts, key: Key, video_id: str) -> Task:
    """The caller's task; another tenant's does not exist for it."""
    unknown = NotFound(f"There is no video {video_id[:100]}.", "video_id", "video_not_found")
    if not _ID.fullmatch(video_id):
        raise unknown
    task = await parts.tasks.get(TaskId(video_id))
    if task.tenant != key.tenant:
        raise unknown
    return task


def pace_of(request: Request) -> TimeEstimates:
    return cast(TimeEstimates, request.app.state.pace)


async def _shown(parts: Parts, request: Request, task: Task) -> Video:
    position = await parts.tasks.position(task) if task.state is State.QUEUED else None
    model = None if task.ended else await catalog_of(request).find(task.model)
    eta_s = pace_of(request).eta_s(task, position, model.max_replicas if model else 1, parts.now())
    return video_of(task, parts.config.retention_s, position=position, eta_s=eta_s)


async def _answer(parts: Parts, request: Request, task: Task) -> Response:
    video = await _shown(parts, request, task)
    headers = {} if task.ended else {"openai-poll-after-ms": _POLL_AFTER_MS}
    return Response(video.model_dump_json(), media_type="application/json", headers=headers)


@router.post(
    "/v1/videos",
    response_model=Video,
    responses=documented(409, 413, 415, 429),
    openapi_extra=_video_body(),
    summary="Ask for a video",
)
async def create(request: Request, key: UserDep, parts: PartsDep, terms: TermsDep) -> Response:
    asked = await read_asked(request, parts.config.max_body_bytes)
    task = await submissions_of(request).create(asked, key, terms)
    return await _answer(parts, request, task)


@router.post(
    "/generate",
    response_model=TaskStarted,
    responses=documented(409, 413, 415, 429),
    openapi_extra=_video_body(),
    summary="Ask for a video (older interface)",
)
async def generate(request: Request, key: UserDep, parts: PartsDep, terms: TermsDep) -> TaskStarted:
    asked = await read_asked(request, parts.config.max_body_bytes)
    task = await submissions_of(request).create(asked, key, terms)
    return TaskStarted(task_id=task.id)


@router.get("/v1/videos", response_model=VideoList, summary="List videos")
async def index(
    request: Request,
    key: UserDep,
    parts: PartsDep,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    if after is not None and not _ID.fullmatch(after):
        raise NotFound(f"There is no video {after[:100]}.", "after", "video_not_found")
    tasks, more = await parts.tasks.page(
        key.tenant, after=TaskId(after) if after else None, limit=limit, order=order
    )
    few = asyncio.Semaphore(_POSITIONS_AT_ONCE)

    async def shown(task: Task) -> Video:
        async with few:
            return await _shown(parts, request, task)

    videos = await asyncio.gather(*map(shown, tasks))
    page = VideoList(
        data=list(videos),
        first_id=videos[0].id if videos else None,
        last_id=videos[-1].id if videos else None,
        has_more=more,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/v1/videos/{video_id}", response_model=Video, summary="Look at a video")
async def show(video_id: str, request: Request, key: UserDep, parts: PartsDep) -> Response:
    return await _answer(parts, request, await own_task(parts, key, video_id))


@router.post(
    "/v1/videos/{video_id}/cancel", response_model=Video, responses=documented(409), summary="Stop a video"
)
async def cancel(video_id: str, request: Request, key: UserDep, parts: PartsDep) -> Response:
    task = await _cancelled(parts, await own_task(parts, key, video_id))
    if task.state is not State.CANCELLED:
        raise Conflict(f"The video is {task.state} already.", "video_id", "video_ended")
    return await _answer(parts, request, task)


@router.post(
    "/v1/videos/{video_id}/remix",
    response_model=Video,
    responses=documented(409, 413, 415, 429),
    openapi_extra=_body({"application/json": {"schema": schema_of(RemixRequest)}}),
    summary="The same again with another prompt",
)
async def remix(video_id: str, request: Request, key: UserDep, parts: PartsDep, terms: TermsDep) -> Response:
    source = await own_task(parts, key, video_id)
    body = await read_json(request, RemixRequest)
    task = await submissions_of(request).remix(source, body, key, terms)
    return await _answer(parts, request, task)


@router.delete("/v1/videos/{video_id}", response_model=VideoDeleted, summary="Delete a video and its objects")
async def delete(video_id: str, key: UserDep, parts: PartsDep) -> VideoDeleted:
    task = await _cancelled(parts, await own_task(parts, key, video_id))
    # Objects first: if this process dies in between, the caller still sees the task and can ask again.
    await parts.blobs.delete([blob.key async for blob in parts.blobs.list(of_task(task.id))])
    await parts.tasks.forget(task)
    get_log().info("task deleted", task=task.id, tenant=task.tenant)
    return VideoDeleted(id=task.id)


async def _cancelled(parts: Parts, task: Task) -> Task:
    """The task once it has ended: cancelled now, or however it ended before."""
    if task.ended:
        return task
    try:
        task = await parts.tasks.apply(task.id, Cancelled(parts.now()))
        get_log().info("task cancelled", task=task.id, tenant=task.tenant)
        return task
    except Stale:
        return await parts.tasks.get(task.id)
