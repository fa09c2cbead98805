"""The worker's side of its talk with a gateway: registers, sends heartbeats, follows the orders that come back.

It only calls out. While the gateway is away the replicas go on serving, and the gateway is called until it answers.
"""

import asyncio
import contextlib
import json
import os
import random
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from turnout.background import BackgroundLoops
from turnout.backoff import backoff_s
from turnout.errors import Misconfigured, Unavailable
from turnout.fleet.join_code_rules import is_join_code
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.worker_messages import EVICTED, Heartbeat, Registered, Registration, WorkerOrders
from turnout.telemetry.log import get_log, name_process
from turnout.worker.advertised_url import check_advertised, has_name
from turnout.worker.relay_tokens import probe_answer
from turnout.worker.replica_set import ReplicaSet

log = get_log()

_CALL_S = 10.0  # for a response, besides the time that the gateway is asked to wait
_FIRST_RETRY_S = 0.2
_LONGEST_RETRY_S = 10.0
_LONGEST_WAIT_S = 30.0
_MAX_ANSWER_BYTES = 8 * 2**20
_REGISTER_AGAIN_S = 300.0  # gateways call the address that our name led to when we registered
_EARLY_PAUSE_S = 0.5  # after a response that came early and had nothing new


_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this worker is to its gateway; kept over restarts. `key` is the worker key that it got for a join code."""

    id: WorkerId
    secret: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """`join` is the gateway's URL, `key` a worker key or a join code, `url` how gateways reach this worker (or TUNNEL), `state` the
    file that keeps its identity."""

    join: str
    key: str
    name: str
    url: str
    state: Path
    tls: ssl.SSLContext


class Joiner:
    """`read_machine` measures the machine anew for each message."""

    def __init__(self, settings: JoinSettings, read_machine: Callable[[], Machine]) -> None:
        check_advertised(settings.url)
        self.settings = settings
        self._read_machine = read_machine
        self._identity = load_identity(settings.state)
        self._changed = asyncio.Event()
        self._leaving = asyncio.Event()
        self._seen = 0
        self._trouble = ""
        self._joined = False
        self._gateways: frozenset[str] = frozenset()
        self._tokens: dict[ReplicaId, str] = {}
        self._probe_key = secrets.token_hex(32)
        self._is_named = has_name(settings.url)

    @property
    def trouble(self) -> str:
        """Why the gateway is not reached now; empty if it is."""
        return self._trouble

    @property
    def joined(self) -> bool:
        """Whether a gateway has taken this process's registration."""
        return self._joined

    @property
    def identity(self) -> Identity | None:
        return self._identity

    @property
    def gateways(self) -> frozenset[str]:
        """All gateways, as the last response named them."""
        return self._gateways

    def token_of(self, gang: ReplicaId) -> str | None:
        """The right of a gang that was ordered."""
        return self._tokens.get(gang)

    def prove(self, nonce: str) -> str:
        """Answers a gateway that checks whether the URL we advertise leads to us."""
        return probe_answer(self._probe_key, nonce)

    def changed(self) -> None:
        """A replica has changed: report it now, not at the next heartbeat."""
        self._changed.set()

    def leave(self) -> None:
        self._leaving.set()

    async def run(self, replicas: ReplicaSet, loops: BackgroundLoops | None = None) -> None:
        """Talks with the gateway, and keeps the other `loops` running. Returns when `leave` was called, all replicas have
        stopped, and the gateway was told, if it answers."""
        loops = loops or BackgroundLoops(fatal=(Misconfigured,))
        async with httpx.AsyncClient(verify=self.settings.tls, timeout=_CALL_S) as client:
            loops.add("joiner", partial(self._talk, client, replicas))
            async with loops.running():
                await self._leaving.wait()
                await replicas.drain()
            await self._report_end(client, replicas)

    async def _talk(self, client: httpx.AsyncClient, replicas: ReplicaSet) -> None:
        """Registers and sends heartbeats for ever. After an error it starts again, ever more slowly: to register again is
        right whether the gateway was away, forgot us or changed our secret."""
        failures = 0
        while True:
            try:
                heartbeat_s = await self._register(client)
                until = time.monotonic() + _REGISTER_AGAIN_S if self._is_named else inf
                while time.monotonic() < until:
                    await self._heartbeat(client, replicas, heartbeat_s)
                    failures, self._trouble = 0, ""
            except Unavailable as err:
                failures += 1
                if str(err) != self._trouble:
                    log.warning("gateway was not reached", error=str(err))
                self._trouble = str(err)
            await asyncio.sleep(backoff_s(failures, _FIRST_RETRY_S, _LONGEST_RETRY_S, random.random()))

    async def _register(self, client: httpx.AsyncClient) -> float:
        """Registers, and returns how often to send heartbeats."""
        known = self._identity
        message = Registration(
            name=self.settings.name,
            url=self.settings.url,
            probe_key=self._probe_key,
            machine=self._read_machine(),
            known_as=known.id if known else None,
            secret=known.secret if known else None,
        )
        key = self.settings.key
        if is_join_code(key) and known is not None and known.key:
            key = known.key
        answer = await self._call(client, "/workers/register", key, message, _CALL_S)
        if answer.status_code == 401 and known is not None and key == known.key:
            # It was revoked while we were away. The code may be a new one; a used one will never do again.
            log.warning("gateway refused the key that it gave", worker=known.id)
            self._identity, self._joined = None, False
            raise Unavailable(_reason(answer))
        if answer.status_code in (403, 409) and known is not None:
            # The old id is no longer ours; with a new one we can still serve.
            log.warning("gateway refused the old identity", worker=known.id, status=answer.status_code)
            self._identity = None
            raise Unavailable(_reason(answer))
        if answer.status_code in (400, 401, 403) and not self._joined:
            # At the start the operator can read this. Later a key may be missing for a while, and we go on.
            whose = (
                ""
                if answer.status_code == 400
                else "the gateway refuses the worker key or join code (--token): "
            )
            raise Misconfigured(f"{whose}{_reason(answer)}")
        if answer.status_code >= 400:
            raise Unavailable(_reason(answer))
        registered = _parse(Registered, answer)
        self._joined = True
        own_key = registered.key or (known.key if known else "")
        self._identity = Identity(registered.id, registered.secret, own_key)
        save_identity(self.settings.state, self._identity)
        name_process(worker=registered.id)
        self._seen = 0
        log.info("worker registered", worker=registered.id, url=self.settings.url)
        return registered.heartbeat_s

    async def _heartbeat(self, client: httpx.AsyncClient, replicas: ReplicaSet, heartbeat_s: float) -> None:
        """One heartbeat. The gateway holds it open for orders, unless there is something new to report."""
        began = time.monotonic()
        wait_s = 0.0 if self._changed.is_set() else min(heartbeat_s, _LONGEST_WAIT_S)
        self._changed.clear()
        orders = await self._unless_changed(self._send_state(client, replicas, wait_s), cut=wait_s > 0)
        if orders is None:
            return
        self._gateways = frozenset(orders.gateways)
        if orders.version > self._seen:
            self._seen = orders.version
            self._tokens = orders.tokens
            replicas.follow(orders.orders)
        elif time.monotonic() - began < wait_s / 2:
            # The same orders too soon, or older ones from a gateway that lags behind: do not press it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_EARLY_PAUSE_S, heartbeat_s)):
                    await self._changed.wait()

    async def _unless_changed(
        self, call: Coroutine[Any, Any, WorkerOrders], cut: bool
    ) -> WorkerOrders | None:
        """The call's result; None if it was cut because there is something to report first. A call that reports something
        is never cut, or a busy worker would never get a response."""
        if not cut:
            return await call
        calling = asyncio.create_task(call, name="heartbeat")
        changed = asyncio.create_task(self._changed.wait(), name="changed")
        try:
            await asyncio.wait({calling, changed}, return_when=asyncio.FIRST_COMPLETED)
            return calling.result() if calling.done() else None
        finally:
            calling.cancel()
            changed.cancel()
            await asyncio.gather(calling, changed, return_exceptions=True)

    async def _send_state(
        self, client: httpx.AsyncClient, replicas: ReplicaSet, wait_s: float
    ) -> WorkerOrders:
        identity = self._identity
        if identity is None:
            raise Unavailable("not registered")
        machine = self._read_machine()
        message = Heartbeat(
            machine=machine,
            replicas=replicas.reports(),
            seen=self._seen,
            wait_s=wait_s,
            gpu_time=replicas.gpu_report(machine),
            leaving=replicas.draining,
        )
        path = f"/workers/{identity.id}/heartbeat"
        answer = await self._call(client, path, identity.secret, message, wait_s + _CALL_S)
        if answer.status_code >= 400:
            raise Unavailable(_reason(answer))
        return _parse(WorkerOrders, answer)

    async def _report_end(self, client: httpx.AsyncClient, replicas: ReplicaSet) -> None:
        with contextlib.suppress(Unavailable):
            await self._send_state(client, replicas, wait_s=0)
            log.info("worker left", replicas=len(replicas.reports()))

    async def _call(
        self, client: httpx.AsyncClient, path: str, token: str, message: BaseModel, timeout_s: float
    ) -> httpx.Response:
        body = bytearray()
        try:
            async with client.stream(
                "POST",
                f"{self.settings.join.rstrip('/')}{path}",
                content=message.model_dump_json(),
                headers={
                    "authorization": f"Bearer {token}",
                    "content-type": "application/json",
                    "accept-encoding": "identity",
                },
                timeout=timeout_s,
            ) as said:
                async for piece in said.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_ANSWER_BYTES:
                        raise Unavailable(f"{path}: the gateway's answer is over {_MAX_ANSWER_BYTES} bytes")
            answer = httpx.Response(said.status_code, content=bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as err:
            raise Unavailable(f"{path}: {type(err).__name__}: {err}") from err
        if answer.status_code == 403 and _code(answer) == EVICTED:
            self.settings.state.unlink(missing_ok=True)  # started again, it joins as a new worker
            raise Misconfigured("the gateway has evicted this worker, or its key (--token) was revoked")
        return answer


def load_identity(path: Path) -> Identity | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return Identity(WorkerId(str(content["id"])), str(content["secret"]), str(content.get("key", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_identity(path: Path, identity: Identity) -> None:
    """Only the owner can read it, from the first byte on; replaced in one move."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(asdict(identity), file)
    fresh.replace(path)


def _reason(answer: httpx.Response) -> str:
    try:
        body: Any = answer.json()
        return f"{answer.status_code}: {body['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code}: {answer.text[:200]}"


def _code(answer: httpx.Response) -> str | None:
    try:
        body: Any = answer.json()
        return str(body["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return None


def _parse(kind: type[_M], answer: httpx.Response) -> _M:
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as err:
        raise Unavailable(f"the gateway's answer is not {kind.__name__}: {err.error_count()} errors") from err
