"""Reads the body that asks for a video: JSON, or the forms that OpenAI's clients send."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from fastapi import Request
from pydantic import TypeAdapter
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from turnout.errors import InvalidRequest
from turnout.gateway.bodies import media_type, parse_json
from turnout.tasks.video_json import VideoRequest
from turnout.validation import given_twice, schema_of, unknown_parameter, validated

_MAX_FIELDS = 64
_FILE = "input_reference"
_ALIASES = {
    "num_frames": "frames",
    "num_inference_steps": "steps",
    "sampling_steps": "steps",
    "flow_shift": "shift",
    "guidance_scale": "guidance",
}
_LOW_NOISE = "guidance_scale_2"
_COUNTS = ("n", "num_outputs_per_prompt")
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
            read = _renamed(await parse_json(await request.body()))
            return VideoBody(validated(_VIDEO_REQUEST, read), None)
        case _:
            raise HTTPException(415, "Send multipart/form-data or application/json.")


def _renamed(values: object) -> object:
    """With the names that users of diffusers and SGLang know. Diffusers' guidance is for high noise, its second for low."""
    if not isinstance(values, Mapping):
        return values
    known = dict(cast("Mapping[str, Any]", values))
    for alias, name in _ALIASES.items():
        if alias not in known:
            continue
        if name in known:
            raise InvalidRequest(f"{alias} is another name of {name}: give one.", alias, "invalid_value")
        known[name] = known.pop(alias)
    for name in _COUNTS:
        if known.pop(name, 1) not in (1, "1"):
            raise InvalidRequest(f"{name} must be 1: one request makes one video.", name, "invalid_value")
    low = known.pop(_LOW_NOISE, None)
    if low is not None:
        high = known.get("guidance")
        if isinstance(high, list | dict | None):
            raise InvalidRequest(f"{_LOW_NOISE} goes with guidance_scale.", _LOW_NOISE, "invalid_value")
        known["guidance"] = [low, high]
    return known


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
            raise given_twice(name)
        values[name] = value

    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != _FILE:
                raise unknown_parameter(name)
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
        raise given_twice(_FILE)
    return VideoBody(validated(_VIDEO_REQUEST, _renamed(values)), upload)
