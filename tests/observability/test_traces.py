"""The trace of a video with a killed rank: `turnout up` with real ranks, and a real receiver. `./dev test-traces` runs it."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.conftest import wait_until
from tests.otlp_receiver import running_receiver
from tests.pace import patient
from tests.service import Service, running_service
from tests.tasks.test_webhooks import receiving

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
CLIP = {"prompt": "a red ball", "model": "wan-tiny-t2v", "steps": 40, "frames": 33, "seed": 7}


async def shown(client: httpx.AsyncClient, video: str) -> dict[str, Any]:
    return (await client.get(f"/v1/videos/{video}")).json()


async def test_a_video_with_a_killed_rank_is_one_trace(tmp_path: Path) -> None:
    with running_receiver() as receiver:
        settings = {
            "traces_endpoint": receiver.endpoint,
            "traces_sample": 0.0,
            "checkpoint_steps": 3,
            "allow_private_urls": True,
        }
        async with (
            running_service(tmp_path, **settings) as service,
            receiving(200) as hook,
            httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
        ):
            made = await client.post(
                "/v1/videos", json={**CLIP, "webhook_url": hook.url}, headers={"traceparent": CALLER}
            )
            assert made.status_code == 200, made.text
            video = str(made.json()["id"])

            async def at_step_5() -> bool:
                found = await shown(client, video)
                return found["stage"] == "denoising" and found["step"] >= 5

            await wait_until(at_step_5, "some steps", 90)
            service.ranks()[0].kill()  # of another rank's death rank 0 may tell before the supervisor does

            async def completed() -> bool:
                return (await shown(client, video))["status"] == "completed"

            await wait_until(completed, "the second attempt", 120)
            await wait_until(lambda: bool(receiver.named("webhook")), "the delivery's span", 30)
            await wait_until(lambda: bool(receiver.named("video")), "the video's span", 30)
            check_logs(service, video)
    tree = receiver.tree(TRACE)
    print("\n".join(tree))
    outline = [line for line in tree if not line.startswith("      step")]
    assert outline == [
        "POST /v1/videos",
        "  video",
        "    queued",
        "    attempt 1 ! rank 0 was killed by SIGKILL",
        "      claim",
        "      loading",
        "      encoding",
        "    queued",
        "    attempt 2",
        "      claim",
        "      loading",
        "      encoding",
        "      decoding",
        "      uploading",
        "    webhook",
    ]
    steps = [span for span in receiver.named("step") if not span.error]
    assert steps[-1].attributes["turnout.step"] == 40
    first, second = receiver.named("attempt")
    assert second.links == (first.id,)
    assert {span.service for span in receiver.spans} == {"turnout-gateway", "turnout-gang", "turnout-manager"}
    assert "red ball" not in repr(receiver.spans)


def check_logs(service: Service, video: str) -> None:
    """The lines of all parts on this task name its trace."""
    lines = [
        json.loads(line)
        for path in service.state_dir.rglob("logs/*.log")
        for line in path.read_text().splitlines()
        if line.startswith("{")
    ]
    events = {line["event"] for line in lines if line.get("trace") == TRACE}
    assert events >= {
        "task submitted",
        "task claimed",
        "task put back",
        "rank began the task",
        "video finished",
    }
    assert not [line for line in lines if line.get("task") == video and line.get("trace") != TRACE]


async def test_a_chat_that_wakes_its_model_is_one_trace(tmp_path: Path) -> None:
    with running_receiver() as receiver:
        async with running_service(tmp_path, traces_endpoint=receiver.endpoint, traces_sample=1.0) as service:
            client = openai.AsyncOpenAI(
                base_url=f"{service.url}/v1", api_key=service.api_key, timeout=patient(120)
            )
            stream = await client.chat.completions.create(
                model="smollm2",
                messages=[{"role": "user", "content": "Say hello."}],
                max_tokens=8,
                stream=True,
                extra_headers={"traceparent": CALLER},
                extra_body={"ignore_eos": True},
            )
            async for _ in stream:
                pass
            await wait_until(lambda: bool(receiver.named("waiting")), "the spans", 30)
    assert receiver.tree(TRACE) == ["chat smollm2", "  waiting"]
    (span,) = receiver.named("chat smollm2")
    assert span.attributes["gen_ai.usage.output_tokens"] == 8
    assert span.attributes["gen_ai.usage.input_tokens"] > 0
    (waited,) = receiver.named("waiting")
    first = span.began + span.attributes["gen_ai.response.time_to_first_chunk"]
    assert span.began <= waited.ended <= first <= span.ended
