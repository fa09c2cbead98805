"""Reads the body that asks for a video: JSON, or the forms that OpenAI's clients send."""

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import TypeAdapter
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from turnout.domain.errors import InvalidRequest
from turnout.gateway.bodies import media_type, parse_json
from turnout.schemas.openai_json import VideoRequest, schema_of
from turnout.schemas.validation import validated

_MAX_FIELDS = 64
_FILE = "input_reference"
_VIDEO_REQUEST = TypeAdapter(VideoRequest)


@dataclass(frozen=True, slots=True)
class VideoBody:
    """`upload` is the file that came with a form."""

    request: VideoRequest
    upload: bytes | None


async def read_video_body(request: Request, max_part_bytes: int) -> VideoBody:
    match media_type(request):
        case "multipart/form-data":
            async with request.form(
                max_files=1, max_fields=_MAX_FIELDS, max_part_size=max_part_bytes
            ) as form:
                return await _from_form(form)
        case "application/json" | "":
            return VideoBody(validated(_VIDEO_REQUEST, parse_json(await request.body())), None)
        case _:
            raise HTTPException(415, "Send multipart/form-data or application/json.")


def video_body_schemas() -> dict[str, Any]:
    """The body's schema by media type, for the OpenAPI document."""
    schema = schema_of(VideoRequest)
    file = {"type": "string", "contentMediaType": "image/*", "format": "binary"}
    form = {**schema, "properties": {**schema["properties"], _FILE: file}}
    return {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}


async def _from_form(form: FormData) -> VideoBody:
    values: dict[str, Any] = {}
    lists: dict[str, list[str]] = {}
    upload: bytes | None = None

    def keep(name: str, value: object) -> None:
        if name in values:
            raise InvalidRequest(f"{name} is given twice.", name, "invalid_value")
        values[name] = value

    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != _FILE:
                raise InvalidRequest(f"Unknown file: {name}.", name, "unknown_parameter")
            upload = await value.read()
        elif name.endswith("[]"):  # how OpenAI's client writes a list
            lists.setdefault(name.removesuffix("[]"), []).append(value)
        elif name == f"{_FILE}[image_url]":  # and an object
            keep(_FILE, {"image_url": value})
        else:
            keep(name, value)
    for name, items in lists.items():
        keep(name, items)
    if upload is not None and _FILE in values:
        raise InvalidRequest(f"{_FILE} is given twice.", _FILE, "invalid_value")
    return VideoBody(validated(_VIDEO_REQUEST, values), upload)
