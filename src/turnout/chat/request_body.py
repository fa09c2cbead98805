"""Reads from a chat request's body what the gateway must know, and has the engine count tokens. Pure."""

from typing import Any, NamedTuple, cast

from pydantic_core import from_json, to_json

from turnout.errors import InvalidRequest

_TELLS_ITSELF = b"/v1/responses"
_CHAT = b"/v1/chat/completions"
_COUNT = b',"stream_options":{"include_usage":true}}'
_PICTURE = "image_url"
_FETCHED = frozenset({_PICTURE, "video_url", "audio_url", "file_url"})
_NOT_READ_AS_CONTENT = ("tools", "functions", "response_format", "metadata")


class ReadBody(NamedTuple):
    """`body` is sent instead of the client's, if it is not None: its stream ends with the usage that the client did not ask for."""

    model: str
    body: bytes | None
    has_pictures: bool = False


def read_body(body: bytes, path: bytes = b"") -> ReadBody:
    """Raises InvalidRequest."""
    try:
        content: object = from_json(body, cache_strings="keys")
    except ValueError as err:
        raise InvalidRequest("The body is not valid JSON.", code="invalid_json") from err
    asked = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    model = asked.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model must name a model.", "model", "missing")
    if path == _CHAT:
        _refuse_empty(asked)
    pictures = False
    if b"url" in body or b"\\u00" in body:  # a letter of a name may be escaped
        pictures = _refuse_addresses(asked)
    if asked.get("stream") is not True or path == _TELLS_ITSELF:
        return ReadBody(model, None, pictures)
    return ReadBody(model, _counting(asked, body), pictures)


def conversation_of(body: bytes) -> bytes:
    """What stays the same while a conversation goes on: all up to the first thing that its user said. `read_body` took it."""
    asked: dict[str, Any] = from_json(body)
    messages = asked.get("messages", asked.get("input", asked.get("prompt")))
    if isinstance(messages, list):
        parts = cast("list[object]", messages)
        spoken = [n for n, part in enumerate(parts, 1) if _by_user(part)]
        messages = parts[: spoken[0]] if spoken else parts
    return to_json(messages, inf_nan_mode="constants")


def _by_user(message: object) -> bool:
    return isinstance(message, dict) and cast("dict[str, object]", message).get("role") == "user"


def with_model(body: bytes, model: str) -> bytes:
    """The same for another model: engines know themselves by their own name. `read_body` took it."""
    return to_json({**from_json(body), "model": model}, inf_nan_mode="constants")


def _refuse_empty(asked: dict[str, Any]) -> None:
    """What no engine can answer, and some answer with 500, which clients repeat."""
    if asked.get("messages") == []:
        raise InvalidRequest("messages must have at least one message.", "messages", "invalid_value")
    shape = asked.get("response_format")
    if not isinstance(shape, dict) or cast("dict[str, Any]", shape).get("type") != "json_schema":
        return
    form = cast("dict[str, Any]", shape)
    named = form.get("json_schema", form)  # llama.cpp's own form has the schema beside the type
    schema = cast("dict[str, Any]", named).get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, dict):
        raise InvalidRequest(
            "response_format of json_schema needs json_schema.schema.", "response_format", "invalid_value"
        )


def _refuse_addresses(asked: dict[str, Any]) -> bool:
    """An engine would call an address that a user chose, from inside and without a guard: so what it is to see comes with
    the request. Whether there is a picture to see."""
    pictures = False
    left: list[object] = [value for name, value in asked.items() if name not in _NOT_READ_AS_CONTENT]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += cast("list[object]", value)
        elif isinstance(value, dict):
            parts = cast("dict[str, object]", value)
            left += parts.values()
            pictures = pictures or _PICTURE in parts
            for name in _FETCHED & parts.keys():
                named = parts[name]
                _refuse_address(
                    cast("dict[str, object]", named).get("url") if isinstance(named, dict) else named
                )
            if parts.get("type") == "url":  # a source in Anthropic's shape
                _refuse_address(parts.get("url"))
    return pictures


def _refuse_address(url: object) -> None:
    if isinstance(url, str) and url[:5].lower() != "data:":
        raise InvalidRequest(
            "Pictures, videos, audio and files must be data: URLs, with the content in them: engines fetch nothing.",
            code="url_not_allowed",
        )


def _counting(asked: dict[str, Any], body: bytes) -> bytes | None:
    if "stream_options" not in asked:
        return body.rstrip()[:-1] + _COUNT  # it is an object, and not an empty one
    options = asked["stream_options"]
    if options is None:
        options = dict[str, Any]()
    if not isinstance(options, dict) or cast("dict[str, Any]", options).get("include_usage") is True:
        return None  # what the engine does not understand it will refuse itself
    return to_json({**asked, "stream_options": {**options, "include_usage": True}}, inf_nan_mode="constants")
