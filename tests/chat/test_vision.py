"""Which models see pictures, and what the others say to one."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores
from tests.gateways import chatting
from tests.people.test_people import refused
from tests.relay.kit import echo

from turnout.errors import InvalidRequest
from turnout.fleet.capability_rules import capabilities, sees
from turnout.fleet.declared_models import read_model

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def asked(url: str = PIXEL, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"model": "m", "messages": [{"role": "user", "content": parts}], **more}


@pytest.mark.parametrize(
    ("declared", "seen"),
    [
        ({"engine": "llamacpp", "weights": "/w/qwen2-vl.gguf"}, False),
        ({"engine": "vllm", "weights": "Qwen/Qwen2.5-VL-7B-Instruct"}, True),
        ({"engine": "vllm", "weights": "meta-llama/Llama-3.2-11B-Vision-Instruct"}, True),
        ({"engine": "vllm", "weights": "llava-hf/llava-1.5-7b-hf"}, True),
        ({"engine": "vllm", "weights": "Qwen/Qwen3-8B"}, None),
        ({"engine": "vllm", "weights": "Qwen/Qwen2.5-VL-7B-Instruct", "vision": False}, False),
        ({"engine": "vllm", "weights": "Qwen/Qwen3-8B", "vision": True}, True),
        ({"engine": "command", "weights": "x", "command": ["serve"], "vision": True}, True),
        ({"engine": "command", "weights": "x", "command": ["serve"]}, None),
    ],
)
def test_who_sees_is_declared_or_known(declared: dict[str, Any], seen: bool | None) -> None:
    model = read_model({"alias": "m", **declared})
    assert sees(model) is seen
    assert ("vision" in capabilities(model)) is (seen is True)


def test_what_no_engine_of_ours_can_do_is_not_declared() -> None:
    with pytest.raises(InvalidRequest, match="projector"):
        read_model({"alias": "m", "engine": "llamacpp", "weights": "w", "vision": True})
    with pytest.raises(InvalidRequest):
        read_model(
            {"alias": "m", "engine": "wan", "family": "wan-tiny-t2v", "weights": "w", "vision": "much"}
        )


async def test_a_picture_goes_to_a_model_that_sees_and_to_no_other(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat:
        replica = await chat.replica(echo)
        async with chat.client() as client:
            for vision in (None, True):
                await chat.route(vision=vision)
                answer = await client.post("/v1/chat/completions", json=asked())
                assert answer.json() == asked()
            await chat.route(vision=False)
            came = len(replica.requests)
            for stream in (False, True):
                answer = await client.post("/v1/chat/completions", json=asked(stream=stream))
                assert refused(answer) == (400, "pictures_not_supported")
                assert "m does not see pictures" in answer.json()["error"]["message"]
            assert refused(await client.post("/v1/chat/completions", json=asked("http://a.b/c"))) == (
                400,
                "url_not_allowed",
            )
            assert len(replica.requests) == came
            assert (
                await client.post("/v1/chat/completions", json={"model": "m", "messages": [{}]})
            ).is_success
        assert chat.at_rest
