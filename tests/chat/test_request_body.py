"""What the gateway reads from a chat request's body before an engine sees it."""

import json
from typing import Any

import pytest

from turnout.chat.request_body import read_body
from turnout.errors import InvalidRequest

INSIDE = "http://169.254.169.254/latest/meta-data"
INLINE = "data:image/png;base64,AAAA"


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    "body",
    [
        message({"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": INSIDE}}),
        message({"type": "image_url", "image_url": INSIDE}),
        message({"type": "video_url", "video_url": {"url": INSIDE}}),
        message({"type": "audio_url", "audio_url": {"url": "file:///etc/passwd"}}),
        message({"type": "image", "source": {"type": "url", "url": INSIDE}}),
        {"model": "m", "input": [{"content": [{"type": "input_file", "file_url": INSIDE}]}]},
        {"model": "m", "documents": {"content": [{"type": "image_url", "image_url": {"url": f" {INLINE}"}}]}},
        {"model": "m", "input": {"image_url": {"url": ""}}},
    ],
)
def test_an_address_for_the_engine_to_fetch_is_refused(body: dict[str, Any]) -> None:
    for said in (json.dumps(body), json.dumps(body).replace("_url", "\\u005furl")):
        with pytest.raises(InvalidRequest) as refused:
            read_body(said.encode())
        assert refused.value.code == "url_not_allowed"


@pytest.mark.parametrize(
    "body",
    [
        message({"type": "image_url", "image_url": {"url": INLINE}}),
        message({"type": "image_url", "image_url": INLINE.upper()}),
        message({"type": "text", "text": f"what is at {INSIDE}?"}),
        {**message(), "tools": [{"parameters": {"properties": {"image_url": {"url": INSIDE}}}}]},
        {**message(), "metadata": {"image_url": INSIDE}},
    ],
)
def test_content_that_comes_along_and_mere_words_pass(body: dict[str, Any]) -> None:
    assert read_body(json.dumps(body).encode())[:2] == ("m", None)


def test_pictures_are_noticed_wherever_they_stand() -> None:
    for part, seen in (
        ({"type": "image_url", "image_url": {"url": INLINE}}, True),
        ({"type": "input_image", "image_url": INLINE}, True),
        ({"type": "text", "text": "image_url"}, False),
    ):
        assert read_body(json.dumps(message(part)).encode()).has_pictures is seen
        assert read_body(json.dumps({"model": "m", "input": [part]}).encode()).has_pictures is seen


CHAT = b"/v1/chat/completions"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": None}}, "response_format"),
    ],
)
def test_what_no_engine_can_answer_is_refused_here(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_body(json.dumps({"model": "m", "messages": [{}], **fields}).encode(), CHAT)
    assert refused.value.param == param


@pytest.mark.parametrize("shape", [{"json_schema": {"schema": {}}}, {"schema": {"type": "object"}}])
def test_a_schema_passes_in_either_form(shape: dict[str, Any]) -> None:
    asked = {"model": "m", "messages": [{}], "response_format": {"type": "json_schema", **shape}}
    assert read_body(json.dumps(asked).encode(), CHAT) == ("m", None, False)
    assert read_body(
        json.dumps({"model": "m", "messages": [{}], "response_format": {"type": "text"}}).encode(), CHAT
    )
