"""The bytes that a gang reads and writes for the attempt that it holds: its checkpoint and first frame, and what it makes.

An object is sent in pieces, so that a connection which breaks costs one piece. It appears under its name when all are there, and
never half. Where the object store signs URLs, gangs send to it and read from it directly.
"""

import base64
import hashlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.responses import RedirectResponse

from turnout.errors import Conflict, InvalidRequest, NotFound, TooLarge, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.stores import Stores
from turnout.tasks.gang_attempts import folder
from turnout.tasks.gang_auth import AttemptDep
from turnout.tasks.gang_messages import PIECE_BYTES, Upload, UploadDone, UploadPlan
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import Task
from turnout.tasks.video_files import content_type, send_object

_MADE = re.compile(
    r"video\.mp4|picture\.png|thumbnail\.webp|spritesheet\.jpg|preview-\d{1,6}\.webp|checkpoint-\d{1,6}\.safetensors"
)
_SIGNED_S = 900.0
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")

router = APIRouter(
    prefix="/v1/gangs/objects", tags=["gangs"], responses=documented(400, 401, 403, 404, 409, 413, 500, 503)
)

Name = Annotated[str, Path(max_length=60)]
Piece = Annotated[int, Path(ge=0, le=9999)]


@router.post("/{name}", openapi_extra=json_body(Upload), summary="Ask how to send an object")
async def plan(name: Name, request: Request, right: AttemptDep, gateway: GatewayDep) -> UploadPlan:
    body = await read_json(request, Upload)
    await _held(gateway.stores, right)
    key, pieces = _key(right, name), -(-body.bytes // PIECE_BYTES)
    names = [key] if pieces == 1 else [_piece(key, number) for number in range(pieces)]
    signed = [await gateway.stores.blobs.put_url(one, _SIGNED_S) for one in names]
    return UploadPlan(
        piece_bytes=PIECE_BYTES,
        content_type=content_type(name),
        signed=tuple(url for url in signed if url is not None) or None,
    )


@router.put("/{name}/{piece}", status_code=204, summary="Send one piece of an object")
async def put_piece(
    name: Name,
    piece: Piece,
    request: Request,
    right: AttemptDep,
    gateway: GatewayDep,
    content_digest: Annotated[str, Header(description="sha-256 of the piece (RFC 9530)")],
    of: Annotated[int, Query(ge=1, le=10_000, description="How many pieces the object has.")] = 1,
) -> Response:
    await _held(gateway.stores, right)
    key = _key(right, name)
    data = await _read_piece(request)
    found = _DIGEST.fullmatch(content_digest)
    if found is None or base64.b64decode(found[1]) != hashlib.sha256(data).digest():
        raise InvalidRequest("The piece does not have this digest.", "content-digest", "digest_mismatch")
    await _put(gateway.stores, right, key if of == 1 else _piece(key, piece), data, content_type(name))
    return Response(status_code=204)


@router.post(
    "/{name}/complete", status_code=204, openapi_extra=json_body(UploadDone), summary="Say that all is sent"
)
async def complete(name: Name, request: Request, right: AttemptDep, gateway: GatewayDep) -> Response:
    """Also again: the answer may have been lost."""
    body, stores = await read_json(request, UploadDone), gateway.stores
    await _held(stores, right)
    key, pieces = _key(right, name), -(-body.bytes // PIECE_BYTES)
    if await _size(stores, key) == body.bytes:
        return Response(status_code=204)
    names = [_piece(key, number) for number in range(pieces)]
    sizes = [await _size(stores, one) for one in names]
    if sum(sizes) != body.bytes:
        raise Conflict("Not all of it was sent.", "bytes", "incomplete_upload")
    try:
        joined = _joined(stores, dict(zip(names, sizes, strict=True)), body.sha256)
        await stores.blobs.put_stream(key, joined, content_type(name))
    except _WrongDigest as err:
        raise Conflict("The object does not have this digest.", "sha256", "incomplete_upload") from err
    finally:
        await stores.blobs.delete(names)
    return Response(status_code=204)


@router.get("/{name}", response_class=Response, summary="Read the checkpoint, or the first frame")
async def get(
    name: Annotated[str, Path(pattern="^(checkpoint|image)$")],
    request: Request,
    right: AttemptDep,
    gateway: GatewayDep,
    redirect: Annotated[bool, Query(description="Whether a URL of the object store will do.")] = True,
) -> Response:
    task = await _held(gateway.stores, right)
    key = task.checkpoint if name == "checkpoint" else task.spec.image
    if key is None:
        raise no_such("object", name)
    url = await gateway.stores.blobs.url(key, _SIGNED_S) if redirect else None
    if url is not None:
        await gateway.stores.blobs.head(key)  # or the store's own words would say that it is gone
        return RedirectResponse(url, 307)
    return await send_object(request, gateway.stores.blobs, key, {})


async def _put(stores: Stores, right: GangRight, key: str, data: bytes, kind: str) -> None:
    """What comes after the attempt is over does not stay: whoever cleaned up did not see it."""
    await stores.blobs.put(key, data, kind)
    try:
        await _held(stores, right)
    except Conflict:
        await stores.blobs.delete([key])
        raise


async def _held(stores: Stores, right: GangRight) -> Task:
    """The task of the attempt; raises Conflict once it is another's, or has ended."""
    assert right.task is not None
    try:
        task = await stores.tasks.get(right.task)
    except NotFound as err:
        raise _lost() from err
    if task.attempt != right.attempt or task.gang != right.gang:
        raise _lost()
    return task


def _lost() -> Conflict:
    return Conflict("The task is no longer this attempt's.", code="attempt_over")


def _key(right: GangRight, name: str) -> str:
    if not _MADE.fullmatch(name):
        raise no_such("object", name)
    return f"{folder(right)}{name}"


def _piece(key: str, number: int) -> str:
    return f"{key}.piece-{number:04d}"


async def _read_piece(request: Request) -> bytes:
    data = bytearray()
    async for some in request.stream():
        data += some
        if len(data) > PIECE_BYTES:
            raise TooLarge(f"A piece is over {PIECE_BYTES} bytes.", code="body_too_large")
    return bytes(data)


async def _size(stores: Stores, key: str) -> int:
    try:
        return (await stores.blobs.head(key)).size
    except NotFound:
        return 0


class _WrongDigest(Exception):
    """Raised before the last piece is passed on, so that the object never appears."""


async def _joined(stores: Stores, pieces: Mapping[str, int], sha256: str) -> AsyncGenerator[bytes]:
    digest, last = hashlib.sha256(), b""
    for name, size in pieces.items():
        async for some in stores.blobs.stream(name, 0, size):
            digest.update(some)
            if last:
                yield last
            last = some
    if digest.hexdigest() != sha256:
        raise _WrongDigest
    yield last
