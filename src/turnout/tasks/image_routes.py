"""Pictures in OpenAI's dialect, on any video model: submitted, queued and paid as videos of one frame, and waited for."""

import asyncio
import base64
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from fastapi import APIRouter, Request

from turnout.errors import Conflict, InvalidRequest, TurnoutError, Unavailable
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.image_json import ImageList, ImageRequest, ImageShown, as_video
from turnout.tasks.live_events import CutOff
from turnout.tasks.prompt_rewriter import rewriting_of
from turnout.tasks.signed_urls import UrlPurpose
from turnout.tasks.submission_headers import HEADER_PARAMETERS, submission_headers
from turnout.tasks.task_removal import cancel_task
from turnout.tasks.task_rules import State, Task
from turnout.tasks.video_body import VideoBody
from turnout.tasks.video_files import Variant, object_of
from turnout.tasks.video_routes import base_url_of, urls_from
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import Caller, right_ended

_PATIENCE_S = 900.0

router = APIRouter(
    tags=["images"], responses=documented(400, 401, 402, 403, 404, 409, 413, 415, 429, 500, 503)
)


@router.post(
    "/v1/images/generations",
    openapi_extra={**json_body(ImageRequest), "parameters": HEADER_PARAMETERS},
    summary="Ask for pictures",
)
async def generate(request: Request, caller: UserDep, gateway: GatewayDep) -> ImageList:
    """Answers when they are made. A caller that hangs up cancels them, unless it gave an Idempotency-Key to come back with."""
    asked, key = await read_json(request, ImageRequest), submission_headers(request).idempotency_key
    tasks = await _submit(request, gateway, caller, asked)
    try:
        async with (
            gateway.revocations.callers.within(caller, right_ended()),
            asyncio.timeout(_PATIENCE_S),
            asyncio.TaskGroup() as group,
        ):
            leaving = group.create_task(_wait_disconnect(request), name="client leaves")
            ending = group.create_task(_wait_ended(gateway, tasks), name="pictures end")
            await asyncio.wait((leaving, ending), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            left = not ending.done() and ending.cancel()
    except TimeoutError as err:
        names = ", ".join(task.id for task in tasks)
        raise Unavailable(f"It takes longer than {_PATIENCE_S:g} s: look at {names} later.") from err
    if left:
        for task in () if key else tasks:
            await cancel_task(gateway.stores, task, gateway.now())
        raise Conflict("The client has left.", code="client_left")
    ended = ending.result()
    if isinstance(ended, TurnoutError):
        raise ended
    return await _answer(request, gateway, asked, ended)


async def _submit(request: Request, gateway: Gateway, caller: Caller, asked: ImageRequest) -> list[Task]:
    """All of them, or none. Those that a request before has made under the same key go on."""
    headers, submissions = submission_headers(request), gateway.videos.submissions
    key = headers.idempotency_key
    # The same request with the same key must be the same in all.
    name = submissions.new_id() if key is None else hashlib.sha256(key.encode()).hexdigest()[:24]
    tasks, made = list[Task](), list[Task]()
    try:
        for i in range(asked.n):
            seed = None if asked.seed is None else asked.seed + i
            body = VideoBody(as_video(asked, seed, f"images-{name}" if asked.n > 1 else None), None)
            own = replace(headers, idempotency_key=key and f"images-{name}.{i}")
            rewritten = (
                rewriting_of(tasks[0]) if tasks and asked.enhance else None
            )  # one prompt for all of them
            task_id = submissions.new_task_id()
            task, _ = await submissions.create(body, caller, own, rewritten, task_id)
            tasks.append(task)
            if task.id == task_id:
                made.append(task)
    except TurnoutError:
        await _take_back(gateway, caller, made)
        raise
    return tasks


async def _take_back(gateway: Gateway, caller: Caller, tasks: Sequence[Task]) -> None:
    """What is refused counts for no day."""
    now = gateway.now()
    ended = [await cancel_task(gateway.stores, task, now) for task in tasks]
    cancelled = sum(task.state is State.CANCELLED for task in ended)
    await gateway.stores.tenants.allowances.give_back(caller.allowances, "videos", cancelled, now)


async def _wait_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _wait_ended(gateway: Gateway, tasks: Sequence[Task]) -> list[Task] | TurnoutError:
    """The tasks as they ended, or why nobody knows how; also over a tail that breaks and is taken up again."""
    ended = list[Task]()
    try:
        for task in tasks:
            now = task
            while not now.ended:
                with suppress(CutOff):
                    async for _ in gateway.videos.live.follow(now, "0"):
                        pass
                now = await gateway.stores.tasks.get(task.id)
            ended.append(now)
    except TurnoutError as err:
        return err
    return ended


async def _answer(
    request: Request, gateway: Gateway, asked: ImageRequest, tasks: Sequence[Task]
) -> ImageList:
    for task in tasks:
        _refuse_unmade(task)
    urls = urls_from(gateway, base_url_of(request))
    data = list[ImageShown]()
    for task in tasks:
        revised = task.spec.prompt if task.original_prompt is not None else None
        shown = ImageShown(video=task.id, seed=task.spec.seed, revised_prompt=revised)
        if asked.response_format != "b64_json":
            shown.url = f"{urls.url(task.id, UrlPurpose.CONTENT, gateway.now())}&variant={Variant.PICTURE}"
        if asked.response_format != "url":
            picture = await gateway.stores.blobs.get(object_of(task, Variant.PICTURE))
            shown.b64_json = base64.b64encode(picture).decode()
        data.append(shown)
    spec = tasks[0].spec
    return ImageList(created=int(gateway.now()), data=data, size=f"{spec.width}x{spec.height}")


def _refuse_unmade(task: Task) -> None:
    if task.state is State.CANCELLED:
        raise Conflict(f"{task.id} was cancelled.", "prompt", "cancelled")
    if task.failure is not None and task.failure.code == "unrenderable":
        raise InvalidRequest(task.failure.message, "prompt", task.failure.code)
    if task.failure is not None:
        raise Unavailable(task.failure.message, code=task.failure.code)
