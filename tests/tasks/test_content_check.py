"""The check before a task is accepted and before a result is shown: a word list, and a real HTTP server that gives verdicts."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, running
from tests.people.test_people import refused

from turnout.tasks import gang_attempts
from turnout.tasks.check_rules import ContentRefusal, has_word, refusal_in
from turnout.tasks.gang_messages import FinishTold, PreviewTold
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import GangId, State, Task
from turnout.tasks.task_settings import CheckSettings

Verdict = Callable[[dict[str, Any]], bytes | None]
NO_VERDICTS = (
    *(None, b"", b"[1]", b'{"verdict": "later"}', b"{" * 70_000),
    b'{"verdict": "refuse", "reason": "half an emoji: \\ud83d"}',  # no text that can be stored or shown
)
PASS, REFUSE = b'{"verdict": "pass"}', b'{"verdict": "refuse", "reason": " not \\n here "}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a bad, red ball", True),
        ("A BAD ball", True),
        ("ｂａｄ", True),  # noqa: RUF001
        ("a badge", False),
        ("画一个坏人", True),
        ("画一个坏 人", True),
        ("画一个坏\u200b·人", True),
        ("画一个好人", False),
        ("very b.a.d", False),
        ("two  Bad-Words here", True),
        ("", False),
    ],
)
def test_words_are_found_however_they_are_written(text: str, found: bool) -> None:
    assert has_word(text, ("Bad", "坏人", "bad words")) is found


def test_only_a_verdict_is_one() -> None:
    assert refusal_in({"verdict": "pass", "more": 1}) is None
    assert refusal_in({"verdict": "refuse", "reason": " not \n here "}) == ContentRefusal("not here")
    unsaid = ContentRefusal("It was refused by the check of this service.")
    assert refusal_in({"verdict": "refuse", "reason": 7}) == refusal_in({"verdict": "refuse"}) == unsaid
    assert refusal_in({"verdict": "refuse", "reason": " \n"}) == unsaid
    assert refusal_in({"verdict": "refuse", "reason": "x" * 201}) == ContentRefusal("x" * 200)
    for other in ({}, {"verdict": "maybe"}, [], "pass", None, {"verdict": True}):
        with pytest.raises(ValueError, match=r"^the answer has no verdict$"):
            refusal_in(other)


class Checker:
    """A check of the operator's; `verdict` says what to answer: None never answers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.verdict: Verdict = lambda _: PASS
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        self.asked.append(json.loads(await reader.readexactly(size)))
        self.tokens.append(head.partition("authorization: ")[2].partition("\r\n")[0])
        answer = self.verdict(self.asked[-1])
        if answer is None:
            await reader.read()  # until the other end hangs up
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()


@asynccontextmanager
async def checked(
    stores: Stores, tmp_path: Path, limit_submits_per_minute: int = 1000, **settings: Any
) -> AsyncIterator[tuple[Gateway, Checker]]:
    checker = Checker()
    server = await asyncio.start_server(checker.serve, "127.0.0.1", 0)
    checker.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/check"
    check = CheckSettings(**{"url": checker.url, "words": ("坏人",), **settings})
    async with (
        server,
        running(
            stores,
            tmp_path,
            content_check=check,
            content_check_token="sesame",
            limit_submits_per_minute=limit_submits_per_minute,
        ) as gateway,
    ):
        yield gateway, checker


async def finish(gateway: Gateway) -> tuple[Task, gang_attempts.ReportAnswer]:
    """As a gang tells it: a preview, then the result."""
    task = await gateway.gang.claim()
    right = GangRight("k", GangId(task.gang or ""), task.model).for_attempt(task)
    folder = gang_attempts.folder(right)
    for name, data in (("preview-1.webp", b"p"), ("video.mp4", b"v"), ("thumbnail.webp", b"t")):
        await gateway.blobs.put(f"{folder}{name}", data, "application/octet-stream")
    await gateway.blobs.put(f"{folder}spritesheet.jpg", b"sheet", "image/jpeg")
    check = gateway.inside.videos.submissions.check
    told = (PreviewTold(step=1), FinishTold(bytes=1))
    answer, _ = await gang_attempts.hear(gateway.stores, check, right, told)
    await gang_attempts.end_attempt(gateway.stores, right)
    return await gateway.task(task.id), answer


async def test_a_refused_prompt_is_no_task(stores: Stores, tmp_path: Path) -> None:
    async with checked(stores, tmp_path) as (gateway, checker):
        words = await gateway.http.post("/v1/videos", json={"prompt": "一个坏 人"})
        assert refused(words) == (400, "content_refused") and words.json()["error"]["param"] == "prompt"
        assert checker.asked == [], "the word list is enough"
        checker.verdict = lambda asked: REFUSE if "gun" in asked["prompt"] else PASS
        answer = await gateway.http.post("/v1/videos", json={"prompt": "a gun"})
        assert refused(answer) == (400, "content_refused")
        assert answer.json()["error"]["message"] == "not here"
        assert (await gateway.http.get("/v1/videos")).json()["data"] == []
        fine = await gateway.http.post("/v1/videos", json={"prompt": "a ball"})
        assert fine.status_code == 200
        assert checker.asked[1] == {
            "type": "prompt",
            "task": fine.json()["id"],
            "tenant": "acme",
            "model": "wan-tiny-t2v",
            "prompt": "a ball",
            "negative_prompt": "",
        }
        assert set(checker.tokens) == {"bearer sesame"}
        remix = await gateway.http.post(f"/v1/videos/{fine.json()['id']}/remix", json={"prompt": "a gun"})
        assert refused(remix) == (400, "content_refused"), "however it is asked for"


@pytest.mark.parametrize("answer", NO_VERDICTS)
async def test_no_verdict_counts_as_the_operator_says(
    stores: Stores, tmp_path: Path, answer: bytes | None
) -> None:
    for unanswered, status in (("refuse", 503), ("pass", 200)):
        said = {"unanswered": unanswered, "deadline_s": 0.3}
        async with checked(stores, tmp_path, **said) as (gateway, checker):
            checker.verdict = lambda _: answer
            asked = await gateway.http.post("/v1/videos", json={"prompt": "a ball"})
            assert asked.status_code == status
            if status == 503:
                assert refused(asked)[1] == "check_unavailable" and "retry-after" in asked.headers
            else:
                task, _ = await finish(gateway)
                assert task.state is State.COMPLETED


async def test_a_refused_result_is_shown_to_nobody(stores: Stores, tmp_path: Path) -> None:
    async with checked(stores, tmp_path) as (gateway, checker):
        checker.verdict = lambda asked: REFUSE if asked["type"] == "result" else PASS
        video = await gateway.submit()
        task, answer = await finish(gateway)
        assert answer.stale is None and (task.id, task.state, task.result) == (video, State.FAILED, None)
        assert task.failure is not None and (task.failure.code, task.failure.message) == (
            "content_refused",
            "not here",
        )
        assert base64.b64decode(checker.asked[1]["contact_sheet"]) == b"sheet"
        assert task.preview is None, "what is refused was not seen before, either"
        assert [blob.key async for blob in gateway.blobs.list(f"tasks/{video}")] == []
        assert (await gateway.http.get(f"/v1/videos/{video}/content")).status_code != 200
        checker.verdict = lambda _: PASS
        await gateway.submit()
        assert (await finish(gateway))[0].state is State.COMPLETED


async def test_results_are_left_alone_where_the_operator_says_so(stores: Stores, tmp_path: Path) -> None:
    async with checked(stores, tmp_path, results=False) as (gateway, checker):
        await gateway.submit()
        task, _ = await finish(gateway)
        assert task.state is State.COMPLETED and task.preview is not None
        assert [asked["type"] for asked in checker.asked] == ["prompt"]
    with pytest.raises(ValueError):
        CheckSettings(url="ftp://x")
