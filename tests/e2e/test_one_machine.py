"""Chat and video on one machine whose memory holds only one of them: one registry, one set of decisions for both."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.conftest import wait_until
from tests.held_model import held_model
from tests.pace import patient
from tests.service import Service, lives, running_service

pytestmark = pytest.mark.timeout(900)

MIB = 2**20
ROUNDS = 2


def settings(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {"memory_bytes": 600 * MIB, "idle_s": 3.0}
    chat = {"engine": "llamacpp", "weights": "builtin:smollm2", **fields}
    models = {"chat": chat, "clips": held_model(folder, **fields)}
    return {"worker_memory_bytes": 1000 * MIB, "min_resident_s": 2.0, "models": models}


CLIP = {"prompt": "a red ball", "model": "clips", "size": "64x64", "frames": 9, "steps": 6, "seed": 7}


def engines(service: Service) -> Counter[str]:
    """The processes that hold a model, by kind. One look takes so long that the gang may have left for the engine meanwhile: who is
    gone at the end of it is not counted."""
    gangs, chats = service.parts("gang"), service.engines()
    return Counter(clips=sum(map(lives, gangs)), chat=len(chats))


async def chat(service: Service) -> int:
    """Asks, reads the answer, asks again."""
    client = openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.api_key, max_retries=0, timeout=patient(400)
    )
    for _ in range(ROUNDS):
        answer = await client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "Say hello."}],
            max_tokens=5,
            extra_body={"ignore_eos": True},
        )
        assert answer.usage
        assert answer.usage.completion_tokens == 5
    return ROUNDS


async def render(client: httpx.AsyncClient, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """One video after the other."""
    videos: list[dict[str, Any]] = []
    for _ in range(rounds):
        answer = await client.post("/v1/videos", json=CLIP)
        assert answer.status_code == 200, answer.text
        path, shown = f"/v1/videos/{answer.json()['id']}", {"status": "queued"}

        async def ended(path: str = path) -> bool:
            nonlocal shown
            shown = (await client.get(path)).json()
            return shown["status"] in ("completed", "failed")

        await wait_until(ended, "the video", 400)
        videos.append(shown)
    return videos


def placed(service: Service) -> Counter[str]:
    """How often each model was started, by the manager's log."""
    lines = (service.state_dir / "logs" / "manager.log").read_text().splitlines()
    said = [json.loads(line) for line in lines if '"replica placed"' in line]
    return Counter(line["model"] for line in said)


async def test_chat_and_video_share_the_memory_of_one_machine(tmp_path: Path, figures: Any) -> None:
    async with (
        running_service(tmp_path, **settings(tmp_path)) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
    ):
        together: list[Counter[str]] = []
        done = asyncio.Event()

        async def watch() -> None:
            while not done.is_set():
                now = engines(service)
                if now["chat"] and now["clips"]:
                    together.append(now)
                await asyncio.sleep(0.25)

        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            answers, videos = group.create_task(chat(service)), group.create_task(render(client))
            await asyncio.wait({answers, videos})
            done.set()
        took_s = asyncio.get_running_loop().time() - began
        assert not together, "both were resident at once"
        seen = [(v["status"], v["attempt"], v["failures"]) for v in videos.result()]
        assert seen == [("completed", 1, 0)] * ROUNDS, "a gang was stopped in the middle of its task"
        starts = placed(service)
        assert max(starts.values()) <= ROUNDS + 1, "they swapped more often than they were asked"
        await wait_until(lambda: not engines(service).total(), "both to be gone when idle", 120)

        async def at_rest() -> bool:
            models = (await client.get("/v1/models")).json()["data"]
            return {m["status"] for m in models} == {"not started: nobody asks for it"}

        await wait_until(at_rest, "the manager to say so")
        assert [v["status"] for v in await render(client, 1)] == ["completed"], "it wakes again"
        await wait_until(lambda: not engines(service).total(), "it to be gone again", 60)
        figures(
            f"one machine with room for one of two models: {answers.result()} chats and {len(videos.result())} videos, "
            f"alternating, all answered in {took_s:.0f} s with {starts['chat']} starts of the chat engine and "
            f"{starts['clips']} of the gang; never both resident, no attempt interrupted, nothing left when idle"
        )


async def test_a_video_model_is_registered_used_and_removed_over_http(service: Service) -> None:
    async with service.client() as client:
        body = {"alias": "made", "engine": "wan", "model_name": "builtin:wan-tiny-t2v", "cfg": 2}
        made = await client.post("/v1/models/register", json={**body, "family": "wan-tiny-t2v"})
        assert made.status_code == 200, made.text
        clip = {**CLIP, "model": "made"}
        first = (await client.post("/v1/videos", json={**clip, "steps": 100})).json()["id"]

        async def running() -> bool:
            return (await client.get(f"/v1/videos/{first}")).json()["stage"] == "denoising"

        await wait_until(running, "the first video to be rendered", 240)
        second = (await client.post("/v1/videos", json=clip)).json()["id"]

        async def told() -> bool:
            workers = (await client.get("/workers")).json()["data"]
            seen = [
                (r["phase"], r["busy"], "wan" in w["machine"]["engines"])
                for w in workers
                for r in w["replicas"]
                if r["model"] == "made"
            ]
            return seen == [("ready", 1, True)]

        await wait_until(told, "the worker to tell of its gang")
        assert (await client.delete("/v1/models/made")).status_code == 200

        async def ended() -> bool:
            found = [(await client.get(f"/v1/videos/{v}")).json()["status"] for v in (first, second)]
            return found[0] == "completed" and found[1] in ("completed", "failed")

        await wait_until(ended, "the running one to be finished and the waiting one to end", 120)
        shown = (await client.get(f"/v1/videos/{second}")).json()
        assert shown["status"] == "completed" or shown["error"]["code"] == "model_removed"
        await wait_until(lambda: not service.parts("gang", "made"), "the gang to leave", 60)
        assert (await client.post("/v1/videos", json=clip)).status_code == 404
