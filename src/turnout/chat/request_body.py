"""Reads from a chat request's body what the gateway must know, and has the engine count tokens. Pure."""

from typing import Any, cast

from pydantic_core import from_json, to_json

from turnout.errors import InvalidRequest

_TELLS_ITSELF = b"/v1/responses"
_CHAT = b"/v1/chat/completions"
_COUNT = b',"stream_options":{"include_usage":true}}'
_FETCHED = frozenset({"image_url", "video_url", "audio_url", "file_url"})
_NOT_READ_AS_CONTENT = ("tools", "functions", "response_format", "metadata")


def read_body(body: bytes, path: bytes = b"") -> tuple[str, bytes | None]:
    """The model, and the body that is sent instead of the client's, if any: one whose stream ends with the usage that
    the client did not ask for. Raises InvalidRequest."""
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
    if b"url" in body or b"\\u00" in body:  # a letter of a name may be escaped
        _refuse_addresses(asked)
    if asked.get("stream") is not True or path == _TELLS_ITSELF:
        return model, None
    return model, _counting(asked, body)


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


def _refuse_addresses(asked: dict[str, Any]) -> None:
    """An engine would call an address that a user chose, from inside and without a guard: so what it is to see comes with
    the request."""
    left: list[object] = [value for name, value in asked.items() if name not in _NOT_READ_AS_CONTENT]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += cast("list[object]", value)
        elif isinstance(value, dict):
            parts = cast("dict[str, object]", value)
            left += parts.values()
            for name in _FETCHED & parts.keys():
                named = parts[name]
                _refuse_address(
                    cast("dict[str, object]", named).get("url") if isinstance(named, dict) else named
                )
            if parts.get("type") == "url":  # a source in Anthropic's shape
                _refuse_address(parts.get("url"))


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
