"""Reads a request's body: JSON, or the forms that the videos dialect sends. Owns no rule about videos."""

from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from turnout.domain.errors import InvalidRequest
from turnout.schemas.openai_json import VideoRequest
from turnout.schemas.validation import validated

_MAX_FIELDS = 64
_FILE = "input_reference"
_VIDEO_REQUEST = TypeAdapter(VideoRequest)

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Asked:
    """`upload` is the file that came with a form."""

    request: VideoRequest
    upload: bytes | None


async def read_json(request: Request, model: type[T]) -> T:
    return validated(TypeAdapter(model), await read_json_value(request))


async def read_json_value(request: Request) -> object:
    if _media_type(request) not in ("application/json", ""):
        raise HTTPException(415, "Send application/json.")
    return _parsed(await request.body())


async def read_asked(request: Request, max_part_bytes: int) -> Asked:
    """What a caller asks for, from a form or from JSON."""
    match _media_type(request):
        case "multipart/form-data":
            async with request.form(
                max_files=1, max_fields=_MAX_FIELDS, max_part_size=max_part_bytes
            ) as form:
                return await _from_form(form)
        case "application/json" | "":
            return Asked(validated(_VIDEO_REQUEST, _parsed(await request.body())), None)
        case _:
            raise HTTPException(415, "Send multipart/form-data or application/json.")


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _parsed(body: bytes) -> object:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as err:
        raise InvalidRequest(f"The body is not JSON: {err}.", code="invalid_json") from err


async def _from_form(form: FormData) -> Asked:
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
    return Asked(validated(_VIDEO_REQUEST, values), upload)
