"""Prompts made better by a chat model: a scripted engine behind the gateway's own relay."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, chatting, picture
from tests.pace import patient
from tests.people.test_people import refused
from tests.relay.kit import Call

from turnout.chat import chat_limits
from turnout.errors import Misconfigured
from turnout.run.config import load
from turnout.tasks.prompt_rules import asking_for, prompt_in
from turnout.tasks.task_rules import TenantId
from turnout.tasks.task_settings import CheckSettings
from turnout.tasks.video_rules import MAX_PROMPT_CHARS, PromptLanguage
from turnout.tenants.usage_rules import day_of

BETTER = "A red ball rolls slowly over a wooden table in soft morning light."


def completion(text: object, ended: str = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "finish_reason": ended}], **more}


@pytest.mark.parametrize(
    ("answer", "prompt"),
    [
        (completion(BETTER), BETTER),
        (completion(f' "{BETTER}"\n'), BETTER),
        (completion("“一个红球\n滚过桌面。”"), "一个红球 滚过桌面。"),
        (completion(f"<think>red? a ball?</think>\n{BETTER}"), BETTER),
        (completion("<think>it goes on", "length"), None),
        (completion("One sentence. And half of ano", "length"), "One sentence."),
        (completion("no end at all", "length"), None),
        (completion("w." * MAX_PROMPT_CHARS), "w." * (MAX_PROMPT_CHARS // 2)),
        (completion("w" * (MAX_PROMPT_CHARS - 1) + "."), "w" * (MAX_PROMPT_CHARS - 1) + "."),
        (completion("w" * MAX_PROMPT_CHARS), "w" * MAX_PROMPT_CHARS),
        (completion("w" * (MAX_PROMPT_CHARS + 1)), None),
        (completion("一个红球。它滚", "length"), "一个红球。"),
        (completion("Red! Ball", "length"), "Red!"),
        (completion("<think>a</think>One <think>b</think>ball"), "One ball"),
        (completion("  "), None),
        (completion(None), None),
        (completion([{"type": "text"}]), None),
        ({"choices": []}, None),
        ([], None),
        (None, None),
    ],
)
def test_only_a_prompt_is_read_from_an_answer(answer: object, prompt: str | None) -> None:
    assert prompt_in(answer) == prompt


def test_the_video_models_language_is_asked_for() -> None:
    def task(language: PromptLanguage | None, **of: bool) -> str:
        asked = asking_for("一个红球", "m", language, **{"image": False, "still": False, **of})
        told, said = asked.pop("messages")
        assert said == {"role": "user", "content": "一个红球"} and told.pop("role") == "system"
        assert asked == {"model": "m", "max_tokens": 400, "temperature": 0.4}
        return str(told["content"])

    assert "in English" in task(PromptLanguage.ENGLISH)
    assert "in Chinese" in task(PromptLanguage.CHINESE)
    assert "in the language of the user's prompt" in task(None)
    assert "begins with a picture" in task(None, image=True) and "begins with" not in task(None)
    assert "makes short videos" in task(None) and "makes a picture" in task(None, still=True)
    assert "subject, how it moves, the place" in task(None) and "subject, the place" in task(None, still=True)
    assert "framing. Write" in task(None)


@asynccontextmanager
async def rewriting(
    stores: Stores, tmp_path: Path, answer: Callable[[Call], Awaitable[None]], **changes: Any
) -> AsyncIterator[tuple[Chat, httpx.AsyncClient]]:
    async with chatting(stores, tmp_path, prompt_model="m", **changes) as chat:
        await chat.replica(answer)
        async with chat.client() as client:
            yield chat, client


async def better(call: Call) -> None:
    usage = {"prompt_tokens": 70, "completion_tokens": 20}
    await call.json(json.dumps(completion(BETTER, usage=usage)).encode())


async def broken(call: Call) -> None:
    await call.json(b'{"error": {"message": "no such luck", "code": 500}}', b"500 Internal Server Error")


async def silent(call: Call) -> None:
    await call.wait_hung_up()


async def endless(call: Call) -> None:
    await call.json(b" " * 300_000)


async def half_an_emoji(call: Call) -> None:
    """In JSON, and no text that can be stored or shown."""
    await call.json(json.dumps(completion("A red ball \ud83d")).encode())


async def test_a_prompt_is_shown_better(stores: Stores, tmp_path: Path) -> None:
    async with rewriting(stores, tmp_path, better) as (chat, client):
        asked = {"prompt": "一个红球", "model": "wan-tiny-t2v"}
        answer = await client.post("/v1/prompts/enhance", json=asked)
        assert answer.json() == {
            "object": "prompt.enhanced",
            "prompt": BETTER,
            "original_prompt": "一个红球",
            "prompt_model": "m",
        }
        sent = json.loads(chat.replicas[0].requests[0].body)
        assert sent["model"] == "m" and "in English" in sent["messages"][0]["content"]
        assert b"authorization" not in chat.replicas[0].requests[0].headers or (
            chat.gateway.token.encode() not in chat.replicas[0].requests[0].headers[b"authorization"]
        )
        assert refused(await client.post("/v1/prompts/enhance", json={**asked, "model": "m"})) == (
            404,
            "model_not_found",
        )
        assert (await client.post("/v1/prompts/enhance", json={**asked, "prompt": ""})).status_code == 400
        shown = (await client.get("/v1/models/wan-tiny-t2v")).json()
        assert (shown["prompt_model"], shown["prompt_language"]) == ("m", "en")
        assert (await client.get("/v1/models/t2v-big")).json()["prompt_language"] is None
        assert chat.at_rest


async def test_a_video_has_both_prompts(stores: Stores, tmp_path: Path) -> None:
    async with rewriting(stores, tmp_path, better) as (chat, client):
        video = (await client.post("/v1/videos", json={"prompt": "a ball", "enhance": True})).json()
        assert (video["prompt"], video["original_prompt"]) == (BETTER, "a ball")
        assert video["enhance_error"] is None
        assert (await chat.gateway.task(video["id"])).spec.prompt == BETTER
        again = (await client.post(f"/v1/videos/{video['id']}/remix", json={"seed": 3})).json()
        assert (again["prompt"], again["original_prompt"]) == (BETTER, "a ball")
        other = (await client.post(f"/v1/videos/{video['id']}/remix", json={"prompt": "a cube"})).json()
        assert (other["prompt"], other["original_prompt"]) == ("a cube", None)
        plain = (await client.post("/v1/videos", json={"prompt": "a ball"})).json()
        assert (plain["prompt"], plain["original_prompt"]) == ("a ball", None)
        form = await client.post(
            "/v1/videos",
            data={"prompt": "it rolls", "model": "wan-tiny-ti2v", "enhance": "true"},
            files={"input_reference": ("a.png", picture(), "image/png")},
        )
        assert form.json()["original_prompt"] == "it rolls"
        assert "begins with a picture" in chat.replicas[0].requests[-1].body.decode()


async def test_the_same_key_is_one_video_and_one_rewriting(stores: Stores, tmp_path: Path) -> None:
    async with rewriting(stores, tmp_path, better) as (chat, client):
        asked, headers = {"prompt": "a ball", "enhance": True}, {"idempotency-key": "k1"}
        first = (await client.post("/v1/videos", json=asked, headers=headers)).json()
        assert (await client.post("/v1/videos", json=asked, headers=headers)).json()["id"] == first["id"]
        assert len(chat.replicas[0].requests) == 1
        changed = await client.post("/v1/videos", json={"prompt": "a ball"}, headers=headers)
        assert changed.status_code == 409


async def test_what_a_rewriting_used_is_its_callers(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_limits, "_ASK_S", 30.0)  # a busy machine is no reason to lend
    limits = {"limit_chat_requests_per_minute": 1}
    async with rewriting(stores, tmp_path, better, **limits) as (chat, client):
        made = (await client.post("/v1/videos", json={"prompt": "a ball", "enhance": True})).json()
        assert made["original_prompt"] == "a ball"
        await chat.gateway.inside.chat.usage.flush()
        today = day_of(chat.gateway.inside.now())
        rows = await stores.tenants.usage.read([today], TenantId("acme"))
        used = next(row.used for row in rows if row.model == "m")
        assert (used.prompt_tokens, used.completion_tokens) == (70, 20)
        over = (await client.post("/v1/videos", json={"prompt": "a cube", "enhance": True})).json()
        assert (over["prompt"], over["original_prompt"]) == ("a cube", None)
        assert over["enhance_error"]["code"]
        refusal = await client.post("/v1/prompts/enhance", json={"prompt": "a", "model": "wan-tiny-t2v"})
        assert refusal.status_code == 429


@pytest.mark.parametrize("answer", [broken, silent, endless, half_an_emoji])
async def test_where_it_fails_the_original_is_used_and_that_is_said(
    stores: Stores, tmp_path: Path, answer: Callable[[Call], Awaitable[None]]
) -> None:
    async with rewriting(stores, tmp_path, answer, prompt_deadline_s=0.5) as (chat, client):
        video = (await client.post("/v1/videos", json={"prompt": "a ball", "enhance": True})).json()
        assert (video["status"], video["prompt"], video["original_prompt"]) == ("queued", "a ball", None)
        error = video["enhance_error"]
        assert error["code"] and error["message"] and error["message"] in video["notice"]
        assert (await client.get(f"/v1/videos/{video['id']}")).json()["enhance_error"] == error
        asked = {"prompt": "a ball", "model": "wan-tiny-t2v"}
        assert (await client.post("/v1/prompts/enhance", json=asked)).status_code == 503
        await wait_until(lambda: chat.at_rest, "the requests to be given back")


async def test_a_model_that_nobody_serves_stops_no_video(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, prompt_model="gone") as chat, chat.client() as client:
        video = (await client.post("/v1/videos", json={"prompt": "a ball", "enhance": True})).json()
        assert video["enhance_error"]["code"] == "model_not_found"
    async with chatting(stores, tmp_path) as chat, chat.client() as client:
        for path, asked in (
            ("/v1/videos", {"prompt": "a ball", "enhance": True}),
            ("/v1/prompts/enhance", {"prompt": "a ball", "model": "wan-tiny-t2v"}),
        ):
            assert refused(await client.post(path, json=asked)) == (400, "unsupported")


async def test_a_rewriting_ends_with_its_callers_key(stores: Stores, tmp_path: Path) -> None:
    async with rewriting(stores, tmp_path, silent) as (chat, client):
        asked = {"prompt": "a ball", "model": "wan-tiny-t2v"}
        waiting = asyncio.ensure_future(client.post("/v1/prompts/enhance", json=asked))
        await wait_until(lambda: bool(chat.replicas[0].requests), "the engine to be asked")
        key = chat.gateway.token.removeprefix("tk-").partition(".")[0]
        await stores.tenants.keys.revoke(key)
        await chat.gateway.inside.revocations.revoked(key)
        assert (await waiting).status_code >= 400
        await asyncio.wait_for(chat.replicas[0].hung_up.wait(), patient(10))


async def test_no_video_is_made_of_a_rewriting_that_ended_so(stores: Stores, tmp_path: Path) -> None:
    """The rewriting had failed, and where that fails the original is used."""
    async with rewriting(stores, tmp_path, silent) as (chat, client):
        asked = {"prompt": "a ball", "enhance": True}
        waiting = asyncio.ensure_future(client.post("/v1/videos", json=asked))
        await wait_until(lambda: bool(chat.replicas[0].requests), "the engine to be asked")
        key = chat.gateway.token.removeprefix("tk-").partition(".")[0]
        await stores.tenants.keys.revoke(key)
        await chat.gateway.inside.revocations.revoked(key)
        assert refused(await waiting) == (401, "invalid_api_key")
        page, _ = await stores.tasks.page(TenantId("acme"), after=None, limit=9, order="desc")
        assert page == []


async def test_the_check_sees_both_prompts(stores: Stores, tmp_path: Path) -> None:
    check = CheckSettings(words=("morning", "cat"))
    async with rewriting(stores, tmp_path, better, content_check=check) as (chat, client):
        for prompt, asked_engine in (("a cat", 0), ("a ball", 1)):
            answer = await client.post("/v1/videos", json={"prompt": prompt, "enhance": True})
            assert refused(answer) == (400, "content_refused")
            assert len(chat.replicas[0].requests) == asked_engine
        assert (await client.get("/v1/videos")).json()["data"] == []


async def test_pictures_share_one_rewriting(stores: Stores, tmp_path: Path) -> None:
    async with rewriting(stores, tmp_path, better) as (chat, client):
        asked = {"prompt": "a ball", "n": 2, "enhance": True}
        pictures = asyncio.ensure_future(client.post("/v1/images/generations", json=asked))
        for _ in range(2):
            await wait_until(lambda: _waiting(stores), "a picture to be queued")
            task = await chat.gateway.gang.claim()
            assert (task.spec.prompt, task.original_prompt) == (BETTER, "a ball")
            await chat.gateway.gang.finish(task)
        pictures.cancel()
        assert len(chat.replicas[0].requests) == 1
        assert "makes a picture" in chat.replicas[0].requests[0].body.decode()


async def _waiting(stores: Stores) -> bool:
    queue = await stores.backlog.figures("wan-tiny-t2v")
    return queue.length > queue.running


def test_a_video_model_rewrites_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="prompt_model"):
        load({"state_dir": str(tmp_path), "prompt_model": "wan-tiny-t2v"}, {})
