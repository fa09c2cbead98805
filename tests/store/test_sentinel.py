"""Two servers that replicate and the Sentinels that watch them: what was accepted is there after a failover."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from redis.exceptions import RedisError
from tests.conftest import make_task, wait_until
from tests.ports import free_ports

from turnout.errors import Misconfigured, Unavailable
from turnout.processes.child import Child
from turnout.store import connection
from turnout.store.connection import RedisConnection
from turnout.store.object_store import open_blobs
from turnout.store.server_facts import read_server_facts
from turnout.store.server_url import read_sentinel_url, with_passwords
from turnout.store.store_settings import AcceptAfter
from turnout.store.valkey import valkey_binary
from turnout.stores import Stores, stores_on
from turnout.tasks.task_rules import Idempotency, Limits

PASSWORD, SENTINEL_PASSWORD = "p@ss/word:1", "watch:2"
LIMITS = Limits(100, 100, 1000)


@dataclass
class Replicated:
    """`servers` are the primary, as long as nothing has failed, and its replica."""

    url: str
    servers: tuple[Child, Child]
    folder: Path

    def stores(self, accept_after: AcceptAfter) -> Stores:
        link = RedisConnection(self.url, "turnout", accept_after)
        return stores_on(link, open_blobs(str(self.folder / "objects")), retention_s=3600)


@pytest.fixture
async def replicated(tmp_path: Path) -> AsyncIterator[Replicated]:
    first, second, *watchers = free_ports(5)
    async with AsyncExitStack() as stack:
        servers: list[Child] = []
        for port, primary in ((first, None), (second, first)):
            of = [f"replicaof 127.0.0.1 {primary}"] if primary else []
            servers.append(await _start(stack, tmp_path / str(port), port, [*_server_settings(), *of]))
        await wait_until(lambda: _in_step(first), "the replica to be in step")
        # Only now: a Sentinel asks for replicas when it starts, and then every ten seconds.
        for port in watchers:
            await _start(stack, tmp_path / str(port), port, _sentinel_settings(first), "--sentinel")
        named = ",".join(f"127.0.0.1:{port}" for port in watchers)
        url = with_passwords(f"redis+sentinel://{named}/main", PASSWORD, SENTINEL_PASSWORD)
        made = Replicated(url, (servers[0], servers[1]), tmp_path)
        await wait_until(lambda: _is_watched(made), "the Sentinels to know one another")
        yield made


def _server_settings() -> list[str]:
    return [
        *("appendonly yes", "appendfsync everysec", 'save ""', "repl-diskless-sync-delay 0"),
        *(f'requirepass "{PASSWORD}"', f'masterauth "{PASSWORD}"'),
    ]


def _sentinel_settings(primary: int) -> list[str]:
    return [
        f'requirepass "{SENTINEL_PASSWORD}"',
        f'sentinel sentinel-pass "{SENTINEL_PASSWORD}"',
        f"sentinel monitor main 127.0.0.1 {primary} 2",
        f'sentinel auth-pass main "{PASSWORD}"',
        "sentinel down-after-milliseconds main 500",
        "sentinel failover-timeout main 3000",
    ]


async def _start(stack: AsyncExitStack, home: Path, port: int, settings: list[str], *options: str) -> Child:
    home.mkdir()
    file = home / "valkey.conf"
    file.write_text("\n".join((f"port {port}", "bind 127.0.0.1", f'dir "{home}"', *settings, "")))
    child = await Child.start(
        str(port), [str(valkey_binary()), str(file), *options], log=home.with_suffix(".log")
    )
    stack.push_async_callback(child.stop, 2)
    return child


def _in_step(primary: int) -> bool:
    try:
        return read_server_facts(with_passwords(f"redis://127.0.0.1:{primary}", PASSWORD, None)).replicas == 1
    except Unavailable:
        return False


async def _is_watched(made: Replicated) -> bool:
    link = RedisConnection(made.url, "turnout")
    try:
        sentinels = link.client.connection_pool.sentinel_manager.sentinels
        seen = [(await one.sentinel_masters())["main"] for one in sentinels]
        return all(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1 for state in seen)
    except (RedisError, OSError):
        return False
    finally:
        await link.close()


async def test_what_was_accepted_is_there_after_a_failover(replicated: Replicated) -> None:
    stores, alone = replicated.stores("replica"), replicated.stores("fsync")
    before, after = make_task(), make_task()
    await stores.tasks.submit(before, LIMITS)
    replicated.servers[0].kill()

    async def accepts() -> bool:
        """The one server that is left has no replica to ask for."""
        try:
            await alone.tasks.submit(after, LIMITS, Idempotency("k", "d"))
            return True
        except Unavailable:
            return False

    await wait_until(accepts, "the replica to be the primary")
    for task in (before, after):
        assert (await stores.tasks.get(task.id)).id == task.id
    assert read_server_facts(replicated.url).replicas == 0
    await stores.link.close()
    await alone.link.close()


async def test_a_task_that_no_replica_has_is_not_accepted(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_SAFE_MS", 400)
    stores, task, again = replicated.stores("replica"), make_task(), make_task()
    once = Idempotency("k", "d")
    replica = psutil.Process(replicated.servers[1].pid)
    replica.send_signal(signal.SIGSTOP)
    try:
        for tried in (task, again):  # asking again is no way around it
            with pytest.raises(Unavailable, match="ask again"):
                await stores.tasks.submit(tried, LIMITS, once)
    finally:
        replica.send_signal(signal.SIGCONT)
    monkeypatch.setattr(connection, "_SAFE_MS", 10_000)
    assert (await stores.tasks.submit(again, LIMITS, once)).id == task.id
    await stores.link.close()


async def test_a_server_without_a_log_is_believed_unless_a_replica_was_asked_for(tmp_path: Path) -> None:
    [port] = free_ports(1)
    async with AsyncExitStack() as stack:
        await _start(stack, tmp_path / "alone", port, ["appendonly no", 'save ""'])
        url = f"redis://127.0.0.1:{port}"
        cases: list[tuple[AcceptAfter, bool]] = [("write", True), ("fsync", True), ("replica", False)]
        for accept_after, accepted in cases:
            link = RedisConnection(url, accept_after, accept_after)
            stores = stores_on(link, open_blobs(str(tmp_path / "objects")), retention_s=3600)
            await wait_until(lambda link=link: _answers(link), "the server to answer")
            if accepted:
                await stores.tasks.submit(make_task(), LIMITS)
            else:
                with pytest.raises(Unavailable):
                    await stores.tasks.submit(make_task(), LIMITS)
            await link.close()


async def _answers(link: RedisConnection) -> bool:
    try:
        await link.ping()
        return True
    except Unavailable:
        await asyncio.sleep(0.05)
        return False


def test_sentinels_are_named_in_one_url() -> None:
    found = read_sentinel_url("redis+sentinel://me:p%40ss@one:1,[::1]:2,three/main/4?sentinel_password=w")
    assert found is not None
    assert found.sentinels == (("one", 1), ("::1", 2), ("three", 26379))
    assert (found.service, found.db) == ("main", 4)
    assert (found.user, found.password, found.sentinel_password) == ("me", "p@ss", "w")
    assert read_sentinel_url("redis://one:1/0") is None


@pytest.mark.parametrize(
    "url", ["redis+sentinel://one:1", "redis+sentinel:///main", "redis+sentinel://one:x/main/0"]
)
def test_a_url_that_names_no_sentinel_or_service_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="host:port/service"):
        read_sentinel_url(url)


def test_passwords_are_kept_apart_from_the_url() -> None:
    assert with_passwords("redis://host/0", "a/b@c", None) == "redis://:a%2Fb%40c@host/0"
    assert with_passwords("redis://me:old@host/0", "new", None) == "redis://me:new@host/0"
    assert with_passwords("redis://host/0", None, None) == "redis://host/0"
    socket = "unix:///run/redis.sock?password=x"
    assert with_passwords(socket, None, None) == socket
