"""Serves the files of a task: whole, by range, or as a redirect to the object store."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from turnout.errors import Conflict, NotFound
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented, respond
from turnout.store.object_store import BlobInfo, Blobs
from turnout.tasks.signed_access import ContentDep
from turnout.tasks.task_rules import Task
from turnout.tasks.video_routes import own_task
from turnout.tenants.auth import UserDep

_URL_TTL_S = 3600.0
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_WORD = re.compile(r"\w+")
_NAME_CHARACTERS = (
    60  # of the prompt: with its seed it stays below what any file system takes, in Chinese, too
)
_TYPES = {
    "mp4": "video/mp4",
    "webp": "image/webp",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
}

router = APIRouter(tags=["videos"])


class Variant(StrEnum):
    VIDEO = "video"
    THUMBNAIL = "thumbnail"
    SPRITESHEET = "spritesheet"
    PREVIEW = "preview"
    PICTURE = "picture"  # of a video of one frame


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes [start, end) of an object."""

    start: int
    end: int


class Unsatisfiable(ValueError):
    """The range begins past the end of the object."""


def span_of(header: str | None, size: int) -> Span | None:
    """The part that a Range header asks for; None stands for all of it, also when the header makes no sense."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.group(1) == match.group(2) == "":
        return None  # several ranges are answered with the whole, as the standard allows
    first, last = match.groups()
    if first == "":
        if int(last) == 0 or size == 0:
            raise Unsatisfiable
        return Span(max(0, size - int(last)), size)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        raise Unsatisfiable
    return Span(start, min(int(last) + 1, size) if last else size)


def etag_of(blob: BlobInfo) -> str:
    return '"' + blob.etag.removeprefix("W/").strip('"') + '"'


def unchanged(if_none_match: str | None, etag: str) -> bool:
    if if_none_match is None:
        return False
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in known or etag in known


def object_of(task: Task, variant: Variant) -> str:
    """The key of what was asked for; raises Conflict while it is still to come, NotFound when it never will."""
    if variant is Variant.PREVIEW:
        if task.preview is not None:
            return task.preview
    elif task.result is not None:
        key = getattr(task.result, variant.value)
        if key is not None:
            return str(key)
        raise NotFound("Only a video of one frame is a picture.", "variant", "no_content")
    if task.ended:
        raise NotFound(f"The video is {task.state}: it has no {variant}.", "variant", "no_content")
    raise Conflict(f"The video is {task.state}: its {variant} is not ready.", "video_id", "video_not_ready")


def file_stem(task: Task, variant: Variant) -> str:
    """What a person would call the file: the prompt's first words and the seed."""
    words = "-".join(_WORD.findall(task.spec.prompt))[:_NAME_CHARACTERS].rstrip("-_") or "video"
    return f"{words}-{task.spec.seed}" + ("" if variant is Variant.VIDEO else f"-{variant}")


def content_type(key: str) -> str:
    return _TYPES.get(key.rpartition(".")[2], "application/octet-stream")


def named_file(stem: str, key: str) -> str:
    """As Content-Disposition writes it: plain for old clients, and whole for all that speak RFC 8187."""
    suffix = key.rpartition(".")[2]
    plain = "-".join(re.findall(r"[A-Za-z0-9_]+", stem))
    return f"filename=\"{plain}.{suffix}\"; filename*=UTF-8''{quote(stem, safe='')}.{suffix}"


_BINARY: dict[str, Any] = {
    kind: {"schema": {"type": "string", "format": "binary"}} for kind in sorted(set(_TYPES.values()))
}
FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The whole object.", "content": _BINARY},
    206: {"description": "The range asked for.", "content": _BINARY},
    302: {"description": "It lies at this presigned URL."},
    304: {"description": "The caller has it already."},
    **documented(400, 401, 403, 404, 409, 416, 429, 500, 503),
}


@router.head(
    "/v1/videos/{video_id}/content", responses=FILE_ANSWERS, response_class=Response, summary="Its size"
)
@router.get(
    "/v1/videos/{video_id}/content", responses=FILE_ANSWERS, response_class=Response, summary="Download"
)
async def content(
    request: Request,
    task: ContentDep,
    gateway: GatewayDep,
    variant: Annotated[Variant, Query()] = Variant.VIDEO,
    redirect: Annotated[
        bool, Query(description="Whether a presigned URL of the object store will do.")
    ] = True,
) -> Response:
    # A presigned URL is good for GET alone.
    if redirect and request.method == "GET":
        url = await gateway.stores.blobs.url(object_of(task, variant), _URL_TTL_S)
        if url is not None:
            return RedirectResponse(url, 302)
    # Whoever has a signed URL need not know the prompt.
    stem = f"{task.id}-{variant}" if "token" in request.query_params else file_stem(task, variant)
    return await send_file(request, gateway, task, variant, stem)


@router.get(
    "/v1/videos/{video_id}/input", responses=FILE_ANSWERS, response_class=Response, summary="Its first frame"
)
async def input_picture(video_id: str, request: Request, caller: UserDep, gateway: GatewayDep) -> Response:
    """The picture that it was asked for with, cut to its size. No link opens it: it may be of somebody."""
    task = await own_task(gateway, caller, video_id)
    if task.spec.image is None:
        raise NotFound("The video began with no picture.", "video_id", "no_content")
    return await send_object(request, gateway.stores.blobs, task.spec.image, {})


async def send_file(
    request: Request, gateway: Gateway, task: Task, variant: Variant, stem: str | None = None
) -> Response:
    """The bytes themselves, or the range that the request asks for."""
    key = object_of(task, variant)
    headers = {
        "Content-Disposition": f"inline; {named_file(stem or file_stem(task, variant), key)}",
    }
    try:
        return await send_object(request, gateway.stores.blobs, key, headers)
    except NotFound as err:
        raise NotFound(f"The {variant} is gone.", "video_id", "no_content") from err


async def send_object(request: Request, blobs: Blobs, key: str, more: Mapping[str, str]) -> Response:
    """An object, or the range of it that the request asks for, with `more` headers. Raises NotFound."""
    blob = await blobs.head(key)
    etag = etag_of(blob)
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    if unchanged(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    wants_part = request.method == "GET" and request.headers.get("if-range", etag) == etag
    try:
        span = span_of(request.headers.get("range") if wants_part else None, blob.size)
    except Unsatisfiable:
        return respond(
            416,
            f"The range lies past the {blob.size} bytes.",
            "invalid_request_error",
            "Range",
            "range_not_satisfiable",
            {"Content-Range": f"bytes */{blob.size}"},
        )
    part = span or Span(0, blob.size)
    headers["Content-Length"] = str(part.end - part.start)
    headers["Content-Type"] = content_type(key)
    headers.update(more)
    if span is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{blob.size}"
    status = 200 if span is None else 206
    if request.method == "HEAD" or blob.size == 0:
        return Response(status_code=status, headers=headers)
    return StreamingResponse(blobs.stream(key, part.start, part.end), status, headers)
