"""Signed URLs: one video's file or events, without a key, until they expire or are revoked."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, running

from turnout.tasks.share_rules import VideoLink
from turnout.tasks.signed_urls import UrlPurpose, UrlSigner
from turnout.tasks.task_rules import TaskId

VIDEO = b"\2" * 300


async def finished(gateway: Gateway) -> dict[str, Any]:
    """The video object; the client has no key afterwards."""
    video = await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim(), VIDEO)
    shown = (await gateway.http.get(f"/v1/videos/{video}")).json()
    del gateway.http.headers["authorization"]
    return shown


async def test_the_url_of_a_finished_video_is_absolute_and_needs_no_key(gateway: Gateway) -> None:
    shown = await finished(gateway)
    assert shown["url"].startswith(f"http://gateway/v1/videos/{shown['id']}/content?token=")
    got = await gateway.http.get(shown["url"], headers={"range": "bytes=0-9"})
    assert (got.status_code, got.content, got.headers["content-type"]) == (206, VIDEO[:10], "video/mp4")
    assert (await gateway.http.get(shown["url"] + "&variant=thumbnail")).content == b"thumb"


@pytest.mark.parametrize(
    ("public_url", "base"),
    [("https://video.example", "https://video.example"), ("http://127.0.0.1:8000", "http://gateway")],
)
async def test_a_url_leads_here_from_the_callers_machine(
    stores: Stores, tmp_path: Path, public_url: str, base: str
) -> None:
    """`turnout up --host 0.0.0.0` knows itself by an address of its own machine."""
    async with running(stores, tmp_path, public_url=public_url) as gateway:
        assert (await finished(gateway))["url"].startswith(f"{base}/v1/videos/")


async def test_events_can_be_followed_by_a_url_and_end_with_the_videos(gateway: Gateway) -> None:
    queued = (await gateway.http.post("/v1/videos", json={"prompt": "a red ball"})).json()
    assert queued["url"] is None
    await gateway.gang.finish(await gateway.gang.claim(), VIDEO)
    del gateway.http.headers["authorization"]
    story = (await gateway.http.get(queued["events_url"])).text
    last = json.loads(story.strip().rpartition("data: ")[2])
    assert last["type"] == "video.completed"
    assert (await gateway.http.get(last["url"])).content == VIDEO


async def test_no_span_of_the_framework_tells_a_token(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would record URLs wherever the process has a tracer, as under `opentelemetry-instrument`."""
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    shown = await finished(gateway)
    assert (await gateway.http.get(shown["url"])).content == VIDEO
    assert spans.get_finished_spans() == ()


async def test_a_url_opens_nothing_else(gateway: Gateway) -> None:
    shown = await finished(gateway)
    token = shown["url"].partition("token=")[2]
    other = (
        await gateway.http.post("/v1/videos", json={"prompt": "b"}, headers=bearer(gateway.token))
    ).json()
    for path in (
        f"/v1/videos/{shown['id']}/events?token={token}",
        f"/v1/videos/{other['id']}/content?token={token}",
        f"/v1/videos/{shown['id']}/content?token={token[:-1]}x",
        f"/v1/videos/{shown['id']}/content?token=1-9999999999999-{'0' * 64}",
        f"/v1/videos/{shown['id']}/content?token=",
    ):
        answer = await gateway.http.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "url_not_valid"), path
    assert (await gateway.http.get(f"/v1/videos/{shown['id']}?token={token}")).status_code == 401


async def test_revoking_ends_all_links_and_urls_of_a_video_and_later_ones_work(gateway: Gateway) -> None:
    shown = await finished(gateway)
    path, key = f"/v1/videos/{shown['id']}", bearer(gateway.token)
    share = (await gateway.http.post(f"{path}/shares", json={}, headers=key)).json()["token"]
    assert (await gateway.http.delete(f"{path}/shares")).status_code == 401
    assert (await gateway.http.delete(f"{path}/shares", headers=key)).status_code == 204
    for url in (shown["url"], shown["events_url"]):
        assert (await gateway.http.get(url)).status_code == 404
    assert (await gateway.http.get("/v1/shared", headers={"x-turnout-share": share})).status_code == 404
    fresh = (await gateway.http.get(path, headers=key)).json()["url"]
    assert (await gateway.http.get(fresh)).content == VIDEO


async def test_a_deleted_videos_url_opens_nothing(gateway: Gateway) -> None:
    shown = await finished(gateway)
    await gateway.http.delete(f"/v1/videos/{shown['id']}", headers=bearer(gateway.token))
    assert (await gateway.http.get(shown["url"])).json()["error"]["code"] == "url_not_valid"


def test_a_token_ends_with_its_time_and_fits_one_secret() -> None:
    signer, task = UrlSigner(b"s", "", 60), TaskId("video_1")
    token = signer.url(task, UrlPurpose.CONTENT, 1000.5).partition("token=")[2]
    link = VideoLink(task, 1060.5, issued_at=1000.5)
    assert signer.read(task, UrlPurpose.CONTENT, token, 1060.4) == link
    assert signer.read(task, UrlPurpose.CONTENT, token, 1060.5) is None
    assert UrlSigner(b"t", "", 60).read(task, UrlPurpose.CONTENT, token, 1001) is None


async def test_all_processes_sign_with_the_same_secret(gateway: Gateway) -> None:
    shares = gateway.stores.share_links
    first = await shares.url_secret()
    assert (len(first), await shares.url_secret()) == (32, first)
