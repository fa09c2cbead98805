"""One trace of a video over gateway, gangs, supervisor and manager, as a real receiver gets it."""

import time
from pathlib import Path

import pytest
from tests.conftest import Stores
from tests.gateways import running
from tests.otlp_receiver import running_receiver
from tests.tasks.test_webhooks import receiving, sending

from turnout.stores import stores_on
from turnout.tasks.task_rules import GangId, Stage
from turnout.telemetry.otlp import OtlpSpans

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"


async def deliver(stores: Stores) -> None:
    async with sending(stores, time.time) as sender:
        await sender.send_due()


async def test_one_trace_from_the_request_over_two_attempts_to_the_delivery(
    stores: Stores, tmp_path: Path
) -> None:
    with running_receiver() as receiver:
        spans = OtlpSpans(receiver.endpoint)
        stores = stores_on(stores.link, stores.blobs, 3600, spans)
        async with (
            running(stores, tmp_path, allow_private_urls=True, traces_sample=0.0) as gateway,
            receiving(200) as hook,
        ):
            body = {"prompt": "a red ball", "model": "wan-tiny-t2v", "webhook_url": hook.url}
            answer = await gateway.http.post("/v1/videos", json=body, headers={"traceparent": CALLER})
            assert answer.status_code == 200, answer.text
            await gateway.http.post("/v1/videos", json={**body, "model": "wan-tiny-ti2v"})  # in no trace
            gang = gateway.gang
            task = await gang.claim()
            assert task.log_ids == {"task": task.id, "attempt": 1, "trace": TRACE}
            for stage, step in ((Stage.LOADING, 0), (Stage.DENOISING, 0), (Stage.DENOISING, 1)):
                await gang.progress(task, stage, step)
            await stores.queue.release(task.model, GangId("g1"), "rank 1 was killed by SIGKILL: its words")
            task = await gang.claim()
            stages = (Stage.LOADING, Stage.ENCODING, Stage.DENOISING, Stage.DECODING, Stage.UPLOADING)
            for step, stage in enumerate(stages):
                await gang.progress(task, stage, step)
            await gang.finish(task)
            await deliver(stores)
        spans.close(60)
    assert receiver.tree(TRACE) == [
        "POST /v1/videos",
        "  video",
        "    queued",
        "    attempt 1 ! rank 1 was killed by SIGKILL",
        "      claim",
        "      loading",
        "      step 1",
        "      step 2 ! cut",
        "    queued",
        "    attempt 2",
        "      claim",
        "      loading",
        "      encoding",
        "      decoding",
        "      uploading",
        "    webhook",
    ]
    assert {span.trace for span in receiver.spans} == {TRACE}, "the other video is in no trace"
    first, second = receiver.named("attempt")
    assert second.links == (first.id,)
    (request,) = receiver.named("POST /v1/videos")
    assert (request.parent, request.service) == ("b7ad6b7169203331", "turnout-gateway")
    assert (first.service, receiver.named("webhook")[0].service) == ("turnout-gang", "turnout-manager")
    assert "red ball" not in repr(receiver.spans) and "/hook" not in repr(receiver.spans)


async def test_with_traces_off_a_task_keeps_its_callers_trace_for_the_logs(
    stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(stores, tmp_path) as gateway:
        body = {"prompt": "a red ball", "model": "wan-tiny-t2v"}
        answer = await gateway.http.post("/v1/videos", json=body, headers={"traceparent": CALLER})
        task = await gateway.task(answer.json()["id"])
    assert task.traceparent == CALLER[:-2] + "00", "nobody records it here"
    assert task.log_ids["trace"] == TRACE
    assert TRACE in capsys.readouterr().err
