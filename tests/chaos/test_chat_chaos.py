"""Kills every kind of process of the chat path while requests are in flight, and accounts for each request, replica and
process afterwards.

Four workers on one machine, reached by a port-forward, by a TLS proxy, by a tunnel, and with engines that are called directly;
two models, two replicas each.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.conftest import wait_until
from tests.pace import patient
from tests.ports import free_port
from tests.service import Service, running_service
from tests.workers import (
    JoinedWorker,
    forwarded,
    list_workers,
    self_signed,
    server_side,
    set_aside_its_own_worker,
    worker_key,
)

MODELS = ("left", "right")
FAULTS = (
    "engine",
    "near worker",
    "public worker",
    "manager",
    "tls worker",
    "redis",
    "tunnelled worker",
    "gateway",
)
CLIENTS = 4
STREAM_TOKENS = 32
PLAIN_TOKENS = 6
# Their connections end in the process that dies, so that the client itself must come again.
_CLIENTS_OWN = {"gateway"}


@dataclass
class Account:
    """What became of every request; `fault` is the latest one caused."""

    fault: str = "none"
    whole: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[str, str]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    short: list[tuple[str, str]] = field(default_factory=list)
    in_flight: int = 0  # streams that have begun
    asking: asyncio.Event = field(
        default_factory=asyncio.Event
    )  # else clients leave the CPU to the parts that start

    @property
    def done(self) -> int:
        return self.whole.total()


@pytest.mark.timeout(600)
async def test_every_request_replica_and_process_is_accounted_for(tmp_path: Path, figures: Any) -> None:
    chance = random.Random(33)
    certificate, key = self_signed(tmp_path)
    async with (
        running_service(tmp_path, models={}, ca_file=str(certificate)) as service,
        AsyncExitStack() as stack,
    ):
        workers = await four_workers(service, tmp_path, stack, (certificate, key))
        began = time.monotonic()
        account, over = Account(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(use(service, number, account, over))
            account.asking.set()
            await wait_until(
                lambda: went_directly(service), "the near worker's engine to be called directly", 60
            )
            for fault in FAULTS:
                await cause(fault, service, workers, account, chance)
            over.set()
            account.asking.set()
        took_s = time.monotonic() - began
        await wait_until(lambda: settled(service), "the registry to agree with the processes", 60)
        replicas = await reported(service)
        processes = engines(service)
        assert sorted(replicas) == sorted(processes), (
            "each replica has its process, and each process its replica"
        )

        async def all_back() -> bool:  # also one that has no replica, and that nobody waited for
            return {worker["name"] for worker in await list_workers(service)} == set(workers)

        await wait_until(all_back, "each worker to come back as itself", 60)

        assert not account.short, "no stream ended silently short"
        lost = [f for f in account.refused if f[0] not in _CLIENTS_OWN]
        assert not lost, "what was not answered yet was answered by another replica"
        assert account.told, "some stream was hit"
        odd = [
            said
            for fault, said in account.told
            if fault not in _CLIENTS_OWN and "broke off the answer" not in said
        ]
        assert not odd, "a stream that was begun ends with the error event that says so"
        await stack.aclose()
        await wait_until(lambda: not engines(service), "the engines to leave with their workers", 60)
    figures(
        f"chat chaos: 4 workers (port-forward, TLS proxy, tunnel, direct), 2 models × 2 replicas, {len(FAULTS)} × kill -9 "
        f"({', '.join(FAULTS)}) in {took_s:.0f} s: {account.whole['stream']} streams and {account.whole['plain']} plain "
        f"requests whole; {len(account.told)} streams ended by an error that the client saw, 0 silently short; "
        f"{len(account.refused)} requests refused or cut before their answer, all by the gateway's own death; "
        f"afterwards {len(replicas)} replicas, {len(processes)} engine processes, the same ones"
    )


async def four_workers(
    service: Service, tmp_path: Path, stack: AsyncExitStack, tls: tuple[Path, Path]
) -> dict[str, JoinedWorker]:
    """All of them, and the models' replicas at two."""
    await set_aside_its_own_worker(service)
    key = await worker_key(service)
    hosts = {"public worker": "127.0.0.2", "tls worker": "127.0.0.3"}
    made: dict[str, JoinedWorker] = {}
    for name, host in hosts.items():
        port = free_port(host)
        context = server_side(*tls) if name == "tls worker" else None
        forward = await stack.enter_async_context(forwarded((host, port), context))
        url = f"{'https' if context else 'http'}://127.0.0.1:{forward}"
        made[name] = JoinedWorker(
            service,
            tmp_path / name.split()[0],
            key,
            WORKER_ID=name.split()[0],
            WORKER_HOST=host,
            WORKER_PORT=str(port),
            PUBLIC_URL=url,
        )
    made["tunnelled worker"] = JoinedWorker(
        service, tmp_path / "tunnelled", key, "--tunnel", WORKER_ID="tunnelled"
    )
    made["near worker"] = JoinedWorker(
        service, tmp_path / "near", key, WORKER_ID="near", WORKER_PORT=str(free_port())
    )
    # The first two get the replicas, the others those of whoever dies.
    for count, name in enumerate(("near worker", "public worker", "tls worker", "tunnelled worker"), 1):
        stack.push_async_callback(made[name].stop)
        await made[name].start()
        if count == 2:
            await wait_until(lambda: all_joined(service, 2), "two workers to join", 90)
            await register(service)
            await wait_until(lambda: settled(service), "two replicas of each model to be ready", 120)
    await wait_until(lambda: all_joined(service, 4), "four workers to join", 90)
    return {name.split()[0]: worker for name, worker in made.items()}


async def register(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http:
        for model in MODELS:
            body = {
                "alias": model,
                "engine": "llamacpp",
                "model_name": "builtin:smollm2",
                "memory_bytes": 300 * 2**20,
                "min_replicas": 2,
                "max_replicas": 2,
                "concurrency": 4,
            }
            assert (await http.post("/v1/models/register", json=body)).status_code == 200


async def use(service: Service, number: int, account: Account, over: asyncio.Event) -> None:
    """Asks on and on, streamed and plain in turn, as the unmodified client does."""
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.api_key, max_retries=0, timeout=patient(60)
    ) as client:
        for turn in itertools.count(number):
            await account.asking.wait()
            if over.is_set():
                return
            model, prompt = MODELS[turn % 2], f"Tell story number {number}, part {turn}."
            if turn // 2 % 2:
                await ask_plain(client, model, prompt, account)
            else:
                await ask_stream(client, model, prompt, account)


async def ask_plain(client: openai.AsyncOpenAI, model: str, prompt: str, account: Account) -> None:
    messages: Any = [{"role": "user", "content": prompt}]
    try:
        answer = await client.chat.completions.create(model=model, messages=messages, max_tokens=PLAIN_TOKENS)
        assert answer.choices[0].finish_reason
        account.whole["plain"] += 1
    except (openai.APIError, httpx.HTTPError) as err:
        account.refused.append((account.fault, repr(err)))
        await asyncio.sleep(0.1)


async def ask_stream(client: openai.AsyncOpenAI, model: str, prompt: str, account: Account) -> None:
    messages: Any = [{"role": "user", "content": prompt}]
    begun, finished, content = False, False, 0
    try:
        stream = await client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=STREAM_TOKENS,
            stream=True,
            extra_body={"ignore_eos": True},  # else some are over before a fault can hit them
        )
        begun = True
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                account.in_flight += not content
                content += 1
            finished = finished or bool(chunk.choices and chunk.choices[0].finish_reason)
        if finished:
            account.whole["stream"] += 1
        else:
            account.short.append((account.fault, f"{content} pieces"))
    except (openai.APIError, httpx.HTTPError) as err:
        (account.told if begun else account.refused).append((account.fault, repr(err)))
        await asyncio.sleep(0.1)
    finally:
        account.in_flight -= bool(content)


async def cause(
    fault: str, service: Service, workers: dict[str, JoinedWorker], account: Account, chance: random.Random
) -> None:
    """One fault in the middle of streams; returns when requests are answered again and all is back."""
    account.asking.set()
    await wait_until(lambda: account.in_flight >= 2, "streams in flight", 60)
    await asyncio.sleep(chance.uniform(0, 0.2))
    account.fault = fault
    if fault == "engine":
        chance.choice(sorted(engines(service).items()))[1].kill()
    elif fault.endswith("worker"):
        worker = workers[fault.split()[0]]
        await worker.kill()
        await worker.start()
    else:
        (victim,) = service.parts(fault)
        victim.kill()
    before = account.done
    await wait_until(
        lambda: account.done >= before + 2 * CLIENTS, f"requests to be answered after {fault}", 90
    )
    account.asking.clear()
    await wait_until(lambda: settled(service), f"all replicas to be back after {fault}", 90)


async def all_joined(service: Service, count: int) -> bool:
    return len(await list_workers(service)) == count


async def settled(service: Service) -> bool:
    """Whether each model has its two replicas, ready, each with a process that runs."""
    try:
        async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=10) as http:
            shown = {m["id"]: m for m in (await http.get("/v1/models")).json()["data"]}
        ready = [shown[model]["status"] == "ready: 2 replicas" for model in MODELS]
        return all(ready) and sorted(await reported(service)) == sorted(engines(service))
    except (httpx.HTTPError, KeyError):
        return False


async def reported(service: Service) -> list[str]:
    """The replicas that workers have, by their last heartbeats."""
    return [
        replica["id"]
        for worker in await list_workers(service)
        for replica in worker["replicas"]
        if replica["phase"] not in ("gone", "failed")
    ]


async def went_directly(service: Service) -> bool:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=10) as http:
        told = (await http.get("/metrics")).text
    return any(
        line.startswith("turnout_chat_direct_requests_total") and float(line.split()[-1]) > 0
        for line in told.splitlines()
    )


def engines(service: Service) -> dict[str, psutil.Process]:
    """The engine processes of this service, whoever started them and whatever became of their parents."""
    log = (service.state_dir / "logs" / "manager.log").read_text()
    facts = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    managers = tuple(f"{fact['manager']}-" for fact in facts if "manager" in fact)
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            replica = process.environ().get("TURNOUT_REPLICA", "")
            words = process.cmdline()
        except psutil.Error:
            continue
        keepers = {"turnout.worker.subreaper", "turnout.processes.tether"}
        if replica.startswith(managers) and keepers.isdisjoint(words) and alive(process):
            assert replica not in found, f"{replica} has two processes"
            found[replica] = process
    return found


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
