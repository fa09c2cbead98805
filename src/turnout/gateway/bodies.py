"""Reads JSON bodies, and says in the OpenAPI document what a body may hold."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from turnout.errors import InvalidRequest, TooLarge
from turnout.gateway.json_bounds import PIECE_BYTES, SMALL_JSON_BYTES, JsonWork
from turnout.validation import schema_of, validated

MAX_JSON_BYTES = SMALL_JSON_BYTES  # of a body that has no picture in it

T = TypeVar("T", bound=BaseModel)


async def read_json(request: Request, model: type[T], max_bytes: int = MAX_JSON_BYTES) -> T:
    return validated(TypeAdapter(model), await read_json_value(request, max_bytes))


async def read_json_value(request: Request, max_bytes: int = MAX_JSON_BYTES) -> object:
    if media_type(request) not in ("application/json", ""):
        raise HTTPException(415, "Send application/json.")
    return await parse_json(await _read_small(request, max_bytes))


def body_too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The body is over {max_bytes} bytes.", code="body_too_large")


async def _read_small(request: Request, max_bytes: int) -> bytes:
    """A body that no upload is expected in."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise body_too_large(max_bytes)
    return bytes(body)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def check_work(body: bytes) -> None:
    """Raises TooLarge for a text that is hard to parse. Others run between the pieces of a long one."""
    if len(body) > SMALL_JSON_BYTES:
        work = JsonWork()
        for at in range(0, len(body), PIECE_BYTES):
            work.add(body[at : at + PIECE_BYTES])
            await asyncio.sleep(0)


async def parse_json(body: bytes) -> object:
    await check_work(body)
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as err:
        raise InvalidRequest(f"The body is not JSON: {err}.", code="invalid_json") from err


def json_body(model: type[BaseModel] | TypeAdapter[Any]) -> dict[str, Any]:
    """How the OpenAPI document shows a required JSON body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(model)}}}}
