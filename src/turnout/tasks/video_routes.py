"""The videos dialect: create, look, list, cancel, remix, delete. A tenant sees its own tasks only."""

import asyncio
import re
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from turnout.engines.wan.builtin import unknown_words
from turnout.errors import Conflict, NotFound, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep, gateway_of
from turnout.gateway.problems import documented
from turnout.store.address_rules import reachable_url
from turnout.tasks.label_rules import MAX_TAG_CHARACTERS, NO_LABELS, Labels, VideoFilter, words_of
from turnout.tasks.label_store import FoundTasks
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.submission_headers import HEADER_PARAMETERS, submission_headers
from turnout.tasks.task_removal import cancel_task, remove_task
from turnout.tasks.task_rules import State, Task, TaskId
from turnout.tasks.video_body import read_video_body, video_body_schemas
from turnout.tasks.video_json import (
    OWN_ID,
    LabelsRequest,
    RemixRequest,
    TaskStarted,
    Video,
    VideoDeleted,
    VideoList,
    video_of,
)
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import Caller
from turnout.validation import schema_of

_ID = re.compile(r"video_[A-Za-z0-9_-]{1,64}")
_OWN_ID = re.compile(OWN_ID)
_POLL_AFTER_MS = "1000"
_POSITIONS_AT_ONCE = 8
_ANYTHING = VideoFilter()

router = APIRouter(tags=["videos"], responses=documented(400, 401, 403, 404, 500, 503))


def _submission(content: dict[str, Any]) -> dict[str, Any]:
    """How the OpenAPI document shows a submission."""
    return {"requestBody": {"required": True, "content": content}, "parameters": HEADER_PARAMETERS}


_CREATE = _submission(video_body_schemas())
_REMIX = _submission({"application/json": {"schema": schema_of(RemixRequest)}})


async def own_task(gateway: Gateway, caller: Caller, video_id: str, param: str = "video_id") -> Task:
    """The caller's task, by its id or by the id that the caller gave it; another tenant's does not exist for it."""
    task = await _owned(gateway, caller, TaskId(video_id)) if _ID.fullmatch(video_id) else None
    if task is None and _OWN_ID.fullmatch(video_id):
        named = await gateway.stores.tasks.named(caller.tenant, video_id)
        task = await _owned(gateway, caller, named) if named else None
    if task is None:
        raise no_such("video", video_id, param)
    return task


async def _owned(gateway: Gateway, caller: Caller, task_id: TaskId) -> Task | None:
    try:
        task = await gateway.stores.tasks.get(task_id)
    except NotFound:
        return None
    return task if task.tenant == caller.tenant else None


async def _shown(gateway: Gateway, task: Task, base_url: str, position: int | None, labels: Labels) -> Video:
    model = await gateway.catalog.find(task.model)
    eta_s = await gateway.videos.estimates.of_task(task, position, gateway.now())
    waiting = await gateway.videos.wait_reasons.of(task)
    video = video_of(
        task,
        gateway.videos.settings.retention_s,
        position=position,
        eta_s=eta_s,
        waiting=waiting,
        urls=urls_from(gateway, base_url),
        now=gateway.now(),
        unknown_words=unknown_words(model.weights, task.spec.prompt) if model else (),
    )
    video.favourite, video.tags = labels.favourite, list(labels.tags)
    return video


def urls_from(gateway: Gateway, base_url: str) -> UrlSigner:
    """Whoever is not told how clients on other machines reach us takes the caller's own word for it."""
    return _reached_at(gateway.videos.urls, base_url)


@lru_cache(maxsize=256)
def _reached_at(urls: UrlSigner, base_url: str) -> UrlSigner:
    return replace(urls, base=reachable_url(urls.base, base_url))


def base_url_of(request: Request) -> str:
    scope = request.scope
    host = next((value for name, value in scope["headers"] if name == b"host"), None)
    root_path = scope.get("app_root_path", scope.get("root_path", ""))
    return _parsed_base_url(scope["scheme"], host, scope.get("server"), root_path)


@lru_cache(maxsize=256)
def _parsed_base_url(
    scheme: str, host: bytes | None, server: tuple[str, int | None] | None, root_path: str
) -> str:
    """The framework's reading of a Host header, which is the same for many requests."""
    headers = [] if host is None else [(b"host", host)]
    scope = {
        "type": "http",
        "scheme": scheme,
        "server": server,
        "headers": headers,
        "root_path": root_path,
        "path": "/",
        "query_string": b"",
    }
    return str(Request(scope).base_url)[:-1]


async def _answer(gateway: Gateway, task: Task, request: Request) -> Response:
    labels = await gateway.videos.labels.find(task.id)
    return await _answer_at(gateway, task, await gateway.stores.tasks.position(task), request, labels)


async def _answer_at(
    gateway: Gateway, task: Task, position: int | None, request: Request, labels: Labels = NO_LABELS
) -> Response:
    video = await _shown(gateway, task, base_url_of(request), position, labels)
    poll = {} if task.ended else {"openai-poll-after-ms": _POLL_AFTER_MS}
    headers = poll | gateway.budgets.headers(task.tenant)
    return Response(video.model_dump_json(), media_type="application/json", headers=headers)


@router.post(
    "/v1/videos",
    response_model=Video,
    responses=documented(402, 409, 413, 415, 429),
    openapi_extra=_CREATE,
    summary="Ask for a video",
)
async def create(request: Request, caller: UserDep) -> Response:
    gateway, headers = await gateway_of(request), submission_headers(request)
    body = await read_video_body(request, gateway.settings.max_body_bytes)
    task, position = await gateway.videos.submissions.create(body, caller, headers)
    return await _answer_at(gateway, task, position, request)


@router.post(
    "/generate",
    response_model=TaskStarted,
    responses=documented(402, 409, 413, 415, 429),
    openapi_extra=_CREATE,
    summary="Ask for a video (older interface)",
)
async def generate(request: Request, caller: UserDep) -> TaskStarted:
    gateway, headers = await gateway_of(request), submission_headers(request)
    body = await read_video_body(request, gateway.settings.max_body_bytes)
    task, _ = await gateway.videos.submissions.create(body, caller, headers)
    return TaskStarted(task_id=task.name or task.id)


def _wanted(
    query: Annotated[str, Query(max_length=200, description="Words that the prompt has, all of them.")] = "",
    tag: Annotated[str | None, Query(max_length=MAX_TAG_CHARACTERS)] = None,
    favourite: Annotated[bool, Query(description="Favourites only.")] = False,
    model: Annotated[str | None, Query(max_length=100)] = None,
    status: State | None = None,
) -> VideoFilter:
    return VideoFilter(words_of(query), tag, favourite, model, status)


@router.get("/v1/videos", response_model=VideoList, summary="List videos, or search them")
async def index(
    request: Request,
    caller: UserDep,
    gateway: GatewayDep,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    wanted: Annotated[VideoFilter, Depends(_wanted)] = _ANYTHING,
) -> Response:
    last = None if after is None else await own_task(gateway, caller, after, "after")
    labels, at = gateway.videos.labels, last.id if last else None
    if wanted.anything:
        tasks, more = await gateway.stores.tasks.page(caller.tenant, after=at, limit=limit, order=order)
        found = FoundTasks(tasks, tasks[-1].id if tasks else None, more)
    else:
        found = await labels.search(caller.tenant, wanted, after=at, limit=limit, order=order)
    said = await labels.of([task.id for task in found.tasks])
    few, base_url = asyncio.Semaphore(_POSITIONS_AT_ONCE), base_url_of(request)

    async def shown(task: Task) -> Video:
        async with few:
            position = await gateway.stores.tasks.position(task)
            return await _shown(gateway, task, base_url, position, said.get(task.id, NO_LABELS))

    videos = await asyncio.gather(*map(shown, found.tasks))
    page = VideoList(
        data=list(videos),
        first_id=videos[0].id if videos else None,
        last_id=found.read_to,
        has_more=found.more,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/v1/videos/{video_id}", response_model=Video, summary="Look at a video")
async def show(video_id: str, request: Request, caller: UserDep, gateway: GatewayDep) -> Response:
    return await _answer(gateway, await own_task(gateway, caller, video_id), request)


@router.patch(
    "/v1/videos/{video_id}",
    response_model=Video,
    responses=documented(413, 415),
    openapi_extra=json_body(LabelsRequest),
    summary="Make a video a favourite, or tag it",
)
async def label(video_id: str, request: Request, caller: UserDep, gateway: GatewayDep) -> Response:
    """It lasts as long as the video."""
    body = await read_json(request, LabelsRequest)
    task = await own_task(gateway, caller, video_id)
    before = await gateway.videos.labels.find(task.id)
    after = Labels(
        before.favourite if body.favourite is None else body.favourite,
        before.tags if body.tags is None else tuple(body.tags),
    )
    if not await gateway.videos.labels.put(task.id, after):
        raise no_such("video", video_id, "video_id")
    position = await gateway.stores.tasks.position(task)
    return await _answer_at(gateway, task, position, request, after)


@router.post(
    "/v1/videos/{video_id}/cancel", response_model=Video, responses=documented(409), summary="Stop a video"
)
async def cancel(video_id: str, request: Request, caller: UserDep, gateway: GatewayDep) -> Response:
    task = await cancel_task(gateway.stores, await own_task(gateway, caller, video_id), gateway.now())
    if task.state is not State.CANCELLED:
        raise Conflict(f"The video is {task.state} already.", "video_id", "video_ended")
    return await _answer(gateway, task, request)


@router.post(
    "/v1/videos/{video_id}/remix",
    response_model=Video,
    responses=documented(402, 409, 413, 415, 429),
    openapi_extra=_REMIX,
    summary="The same again with another prompt",
)
async def remix(video_id: str, request: Request, caller: UserDep, gateway: GatewayDep) -> Response:
    headers = submission_headers(request)
    source = await own_task(gateway, caller, video_id)
    body = await read_json(request, RemixRequest)
    task, position = await gateway.videos.submissions.remix(source, body, caller, headers)
    return await _answer_at(gateway, task, position, request)


@router.delete("/v1/videos/{video_id}", response_model=VideoDeleted, summary="Delete a video and its objects")
async def delete(video_id: str, caller: UserDep, gateway: GatewayDep) -> VideoDeleted:
    task = await own_task(gateway, caller, video_id)
    await remove_task(gateway.stores, task, gateway.now())
    return VideoDeleted(id=task.id)
