"""A gateway on real stores: in-process for plain requests, behind uvicorn for streams; and a gang that obeys tests."""

import asyncio
import io
import itertools
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from PIL import Image

from tests.conftest import Stores, wait_until
from tests.relay.kit import Handler, Replica
from turnout.chat.quota_rules import TenantShare
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.fleet.worker_rules import Enrolment
from turnout.gateway import gateway as gateway_module
from turnout.gateway.app import create_app
from turnout.run.build_gateway import GatewayOutside, build_gateway
from turnout.run.config import Config, load
from turnout.run.run_gateway import relay_settings
from turnout.store.object_store import Blobs
from turnout.store.outbound import WORKERS, Outbound
from turnout.tasks import object_keys
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.task_rules import (
    Event,
    Finished,
    GangId,
    Previewed,
    Progressed,
    Result,
    Stage,
    Task,
    TaskId,
    TenantId,
)
from turnout.tenants.caller import Caller
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.key_rules import Role, mint
from turnout.tenants.oidc import OidcLogins

MODELS = {
    "wan-tiny-t2v": {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "ulysses": 2},
    "wan-tiny-ti2v": {"weights": "builtin:wan-tiny-ti2v", "family": "wan-tiny-ti2v", "ulysses": 2},
    "t2v-big": {"weights": "/weights/t2v", "family": "wan2.2-t2v-a14b", "ulysses": 8},
    "i2v-big": {"weights": "/weights/i2v", "family": "wan2.2-i2v-a14b", "ulysses": 8},
}


@dataclass
class Gang:
    """Drives tasks through the stores the way a gang of ranks does."""

    stores: Stores
    config: Config

    async def claim(self, model: str = "wan-tiny-t2v") -> Task:
        task = await self.stores.queue.claim(model, GangId("g1"), self.config.tasks.limits)
        assert task is not None, f"no {model} task was waiting"
        return task

    async def say(self, task: Task, event: Event) -> Task:
        return await self.stores.tasks.apply(task.id, event)

    async def progress(self, task: Task, stage: Stage, step: int = 0, of: int = 12) -> Task:
        return await self.say(task, Progressed(time.time(), task.attempt, stage, step, of, eta_s=2.5))

    async def preview(self, task: Task, step: int, data: bytes) -> Task:
        key = object_keys.preview(task, step)
        await self.stores.blobs.put(key, data, "image/webp")
        return await self.say(task, Previewed(time.time(), task.attempt, step, key))

    async def finish(self, task: Task, video: bytes = b"\0" * 1000) -> Task:
        base = f"tasks/{task.id}/{task.attempt}/"
        result = Result(f"{base}video.mp4", f"{base}thumbnail.webp", f"{base}sprites.jpg", len(video))
        await self.stores.blobs.put(result.video, video, "video/mp4")
        await self.stores.blobs.put(result.thumbnail, b"thumb", "image/webp")
        await self.stores.blobs.put(result.spritesheet, b"sprites", "image/jpeg")
        return await self.say(task, Finished(time.time(), task.attempt, result))


@dataclass
class Gateway:
    app: FastAPI
    inside: gateway_module.Gateway
    stores: Stores
    blobs: Blobs
    gang: Gang
    http: httpx.AsyncClient
    token: str
    base: str = "http://gateway"
    keys: dict[str, str] = field(default_factory=dict)

    async def key(self, tenant: str = "acme", role: Role = Role.USER) -> str:
        key, token = mint(
            secrets.token_hex(6), secrets.token_urlsafe(16), TenantId(tenant), role, "test", time.time()
        )
        await self.stores.tenants.keys.add(key)
        return token

    async def submit(self, **fields: Any) -> str:
        answer = await self.http.post("/v1/videos", json={"prompt": "a red ball", **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def task(self, video_id: str) -> Task:
        return await self.stores.tasks.get(TaskId(video_id))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def identified(ring: KeyRing, token: str) -> Caller | None:
    return await ring.identify("GET", bearer(token)["authorization"].encode(), (), "")


def recalled(ring: KeyRing, token: str) -> Caller | None:
    return ring.recall("GET", bearer(token)["authorization"].encode(), ())


def picture(width: int = 64, height: int = 48, kind: str = "PNG", colour: str = "red") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, kind)
    return out.getvalue()


def config_for(tmp_path: Path, **changes: Any) -> Config:
    config = load(
        {"state_dir": str(tmp_path), "limit_submits_per_minute": 1000}, {}, _models(tmp_path)
    ).config
    return config.with_settings(**changes)


def _models(tmp_path: Path) -> Path:
    import yaml

    path = tmp_path / "turnout.yaml"
    path.write_text(yaml.safe_dump({"models": MODELS}, sort_keys=False))
    return path


def gateway_on(
    stores: Stores,
    config: Config,
    fetcher: Outbound,
    prober: Outbound,
) -> gateway_module.Gateway:
    numbers = itertools.count(1)
    outside = GatewayOutside(
        fetcher,
        prober,
        relay_settings(config.gateway),
        UrlSigner(b"secret", config.gateway.public_url or "", config.tasks.url_ttl_s),
        new_id=lambda: f"{next(numbers):06d}{secrets.token_hex(4)}",
        new_seed=lambda: 7,
        logins=OidcLogins(config.access.oidc, prober, time.monotonic) if config.access.oidc else None,
    )
    return build_gateway(config, stores, outside)


@asynccontextmanager
async def running(stores: Stores, tmp_path: Path, **changes: Any) -> AsyncIterator[Gateway]:
    """A gateway in this process, its tail running; `changes` are to the config."""
    config = config_for(tmp_path, **changes)
    fetcher = Outbound(config.outbound.allow_private_urls)
    prober = Outbound(True, reach=WORKERS)
    inside = gateway_on(stores, config, fetcher, prober)
    for model in config.models:
        await inside.stores.fleet.models.put(model)
    app = create_app(inside)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as http,
    ):
        gateway = Gateway(app, inside, stores, stores.blobs, Gang(stores, config), http, "")
        gateway.token = await gateway.key()
        http.headers.update(bearer(gateway.token))
        yield gateway
    await fetcher.aclose()
    await prober.aclose()


@asynccontextmanager
async def serving(app: FastAPI, http: type[asyncio.Protocol] | None = None) -> AsyncIterator[str]:
    """The app behind uvicorn on a free port of loopback; its lifespan is the caller's."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = uvicorn.Config(
            app,
            http=http or "auto",
            lifespan="off",
            log_level="error",
            ws="websockets-sansio",
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(settings)
        async with asyncio.TaskGroup() as group:
            serving_task = group.create_task(server.serve([listener]), name="uvicorn")
            while not server.started:
                if serving_task.done():
                    raise RuntimeError("uvicorn did not start")
                await asyncio.sleep(0.005)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                app.state.gateway.videos.stop()
                server.should_exit = True


@pytest.fixture
async def gateway(stores: Stores, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running(stores, tmp_path) as made:
        yield made


@pytest.fixture
async def served(gateway: Gateway) -> AsyncIterator[Gateway]:
    """The same, with `base` a real address, behind the same connections as a real gateway's."""
    async with serving(gateway.app, gateway.inside.chat.relay.protocol) as base:
        gateway.base = base
        yield gateway


@dataclass
class Chat:
    """A gateway whose chat requests go to replicas that do what a test says."""

    gateway: Gateway
    base: str
    replicas: list[Replica]

    @property
    def share(self) -> TenantShare:
        """The tenant's, as this gateway has it."""
        return self.gateway.inside.chat.shares._accounts[TenantId("acme")].share

    @property
    def at_rest(self) -> bool:
        """Nothing is held for anyone."""
        demand = self.gateway.inside.chat.switchboard.demand()
        accounts = self.gateway.inside.chat.shares._accounts.values()
        return not any(d.running or d.waiting for d in demand.values()) and not any(
            a.share.running or a.share.waiting for a in accounts
        )

    async def replica(self, handler: Handler) -> Replica:
        made = Replica(handler)
        await made.start()
        self.replicas.append(made)
        await self.route()
        return made

    async def route(self, concurrency: int = 64, vision: bool | None = None) -> None:
        """Publishes the replicas that there are, as the manager does, and waits until this gateway knows. Each stands for
        a worker of its own, which joined with the key `workers`."""
        stores, board = self.gateway.stores, self.gateway.inside.chat.switchboard
        key, _ = mint("workers", "secret", TenantId("default"), Role.WORKER, "", time.time())
        await stores.tenants.keys.add(key)
        workers = [
            Enrolment(WorkerId(f"w-{n}"), f"w{n}", f"http://127.0.0.1:{r.target.port}", "d" * 64, key=key.id)
            for n, r in enumerate(self.replicas)
        ]
        for worker in workers:
            await stores.fleet.workers.enrol(worker)
        routes = [Route(ReplicaId(f"r{n}"), w.id, w.url, None) for n, w in enumerate(workers)]
        told = ModelRoutes(tuple(routes), concurrency, vision=vision)
        assert await stores.mutex.hold("fleet", "test", 60)
        assert await stores.fleet.manager_state.publish("fleet", "test", Publication(routes={"m": told}))
        await wait_until(lambda: (board._routes or {}).get("m") == told, "the gateway to hear of the routes")

    def client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.base, headers=bearer(self.gateway.token), timeout=30, **options
        )


@asynccontextmanager
async def chatting(stores: Stores, tmp_path: Path, **changes: Any) -> AsyncIterator[Chat]:
    """The gateway with its relay, as it is in the product; `changes` are to the config."""
    async with running(stores, tmp_path, **changes) as gateway:
        inside = gateway.inside
        relay = inside.chat.relay
        async with serving(gateway.app, relay.protocol) as base:
            chat = Chat(gateway, base, [])
            await chat.route()
            try:
                yield chat
            finally:
                relay.close()
                for replica in chat.replicas:
                    replica.stop()
