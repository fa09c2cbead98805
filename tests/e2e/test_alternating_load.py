"""Two models that do not fit together, both wanted all the time: they take turns, and nobody is left out."""

import asyncio
import itertools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from tests.conftest import wait_until
from tests.pace import patient
from tests.service import Service, running_service

MODELS = ("left", "right")
RESIDENT_S = 4.0
STARTS = 3  # one model, the other, and the first again
CLIENTS: tuple[tuple[str, ...], ...] = (("left",), ("right",), MODELS)


def too_large_for_both() -> dict[str, Any]:
    model = {
        "engine": "llamacpp",
        "weights": "builtin:smollm2",
        "needs": {"memory_bytes": int(psutil.virtual_memory().total * 0.51)},
        "concurrency": 4,
    }
    return {name: dict(model) for name in MODELS}


def starts(service: Service) -> int:
    log = service.state_dir / "logs" / "worker.log"
    return log.read_text().count('"event": "engine started"') if log.exists() else 0


@pytest.mark.timeout(420)
async def test_two_models_that_do_not_fit_take_turns(tmp_path: Path, figures: Any) -> None:
    waits: dict[str, list[float]] = {name: [] for name in MODELS}
    turns = Counter[str]()
    latest = ""
    over = asyncio.Event()
    async with running_service(tmp_path, models=too_large_for_both(), min_resident_s=RESIDENT_S) as service:

        async def use(number: int, models: tuple[str, ...]) -> None:
            nonlocal latest
            async with openai.AsyncOpenAI(
                base_url=f"{service.url}/v1", api_key=service.api_key, max_retries=0, timeout=patient(300)
            ) as client:
                for turn in itertools.count():
                    model = models[turn % len(models)]
                    if over.is_set():
                        return
                    messages: Any = [{"role": "user", "content": f"Say {number} and {turn}."}]
                    began = time.monotonic()
                    await client.chat.completions.create(model=model, messages=messages, max_tokens=2)
                    waits[model].append(time.monotonic() - began)
                    if latest != model:
                        latest = model
                        turns[model] += 1

        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, models in enumerate(CLIENTS):
                group.create_task(use(number, models))
            await wait_until(lambda: starts(service) >= STARTS, "the models to take turns", 300)
            seen = {name: len(found) for name, found in waits.items()}
            await wait_until(
                lambda: any(len(waits[m]) > seen[m] for m in MODELS), "the last turn to begin", 60
            )
            over.set()  # those who wait are still served: nobody is refused
        took_s = time.monotonic() - began
        begun = starts(service)
    assert all(turns[name] >= 1 for name in MODELS)
    assert begun <= 2 + took_s / RESIDENT_S, "who became resident stays for a while"
    figures(
        f"chat: two models that do not fit together, {len(CLIENTS)} clients on both for {took_s:.0f} s: {begun} starts, "
        f"all {sum(map(len, waits.values()))} requests answered ("
        + ", ".join(f"{name} {len(found)}, longest wait {max(found):.0f} s" for name, found in waits.items())
        + f"), turns of at least {RESIDENT_S:.0f} s"
    )
