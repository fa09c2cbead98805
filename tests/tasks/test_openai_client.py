"""The unmodified `openai` client against a real server, with a gang that tests drive."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from tests.gateways import Gateway, picture

from turnout.tasks.task_rules import Stage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The videos methods are marked deprecated, as the hosted service closed; the dialect lives on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
async def client(served: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{served.base}/v1", api_key=served.token, max_retries=0, timeout=20
    ) as made:
        yield made


async def test_create_poll_and_download(served: Gateway, client: openai.AsyncOpenAI) -> None:
    video = await client.videos.create(
        prompt="a red ball",
        model="wan-tiny-ti2v",
        seconds="2",  # type: ignore[arg-type]
        size="128x128",  # type: ignore[arg-type]
        input_reference=("a.png", picture(), "image/png"),
        extra_body={"steps": 4, "guidance": [2.0, 3.0], "seed": 11, "negative_prompt": "blur"},
        extra_headers={"X-Turnout-Priority": "high", "Idempotency-Key": "sdk"},
    )
    assert (video.status, video.size, video.seconds, video.progress) == ("queued", "128x128", "2", 0)
    spec = (await served.task(video.id)).spec
    assert (spec.steps, spec.guidance, spec.seed, spec.negative_prompt) == (4, (2.0, 3.0), 11, "blur")
    assert spec.image is not None

    task = await served.gang.claim("wan-tiny-ti2v")
    seen = []
    for step in range(1, 5):
        await served.gang.progress(task, Stage.DENOISING, step, 4)
        seen.append((await client.videos.retrieve(video.id)).progress)
    assert seen == sorted(set(seen)) and seen[0] > 0 and seen[-1] < 100

    async with asyncio.TaskGroup() as group:
        polled = group.create_task(client.videos.poll(video.id))
        group.create_task(served.gang.finish(task, b"mp4 bytes"))
    done = polled.result()
    assert (done.status, done.progress, done.error) == ("completed", 100, None)
    assert done.expires_at is not None and done.completed_at is not None
    for variant, expected in (
        ("video", b"mp4 bytes"),
        ("thumbnail", b"thumb"),
        ("spritesheet", b"sprites"),
    ):
        content = await client.videos.download_content(video.id, variant=variant)  # type: ignore[arg-type]
        assert content.content == expected


async def test_list_remix_and_delete(served: Gateway, client: openai.AsyncOpenAI) -> None:
    made = [await client.videos.create(prompt=f"ball {n}") for n in range(5)]
    listed = [v.id async for v in client.videos.list(limit=2, order="asc")]
    assert listed == [v.id for v in made]  # three pages
    remix = await client.videos.remix(made[0].id, prompt="a blue ball")
    assert (remix.remixed_from_video_id, remix.prompt) == (made[0].id, "a blue ball")
    deleted = await client.videos.delete(made[0].id)
    assert (deleted.id, deleted.deleted, deleted.object) == (made[0].id, True, "video.deleted")
    with pytest.raises(openai.NotFoundError):
        await client.videos.retrieve(made[0].id)
    assert made[0].id not in [v.id async for v in client.videos.list()]


async def test_poll_returns_on_a_cancelled_video(served: Gateway, client: openai.AsyncOpenAI) -> None:
    video = await client.videos.create(prompt="a ball")
    await client.post(f"/videos/{video.id}/cancel", cast_to=object)
    assert (await client.videos.poll(video.id)).status == "cancelled"


async def test_errors_are_the_clients_own_classes(client: openai.AsyncOpenAI) -> None:
    cases: list[tuple[dict[str, Any], type[openai.APIStatusError], str]] = [
        ({"prompt": ""}, openai.BadRequestError, "prompt"),
        ({"prompt": "x", "model": "sora-2"}, openai.NotFoundError, "model"),
        ({"prompt": "x", "extra_body": {"cfg": 3}}, openai.BadRequestError, "cfg"),
    ]
    for arguments, kind, param in cases:
        with pytest.raises(kind) as caught:
            await client.videos.create(**arguments)
        assert caught.value.param == param
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="tk-no.no").videos.list()


async def test_an_early_download_is_not_retried(served: Gateway, client: openai.AsyncOpenAI) -> None:
    video = await client.videos.create(prompt="x")
    eager = client.with_options(max_retries=2)
    with pytest.raises(openai.ConflictError) as caught:
        await eager.videos.download_content(video.id)
    assert caught.value.code == "video_not_ready"
    metrics = (await served.http.get("/metrics")).text
    assert (
        'turnout_http_requests_total{method="GET",route="/v1/videos/{video_id}/content",status="409"} 1.0'
        in metrics
    )


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [m.id async for m in client.models.list()][:2] == ["wan-tiny-t2v", "wan-tiny-ti2v"]
    assert (await client.models.retrieve("t2v-big")).owned_by == "turnout"
