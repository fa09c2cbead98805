"""The first keys of an installation on Kubernetes. The Secret lies at a small server that answers as the API does."""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from turnout.errors import Misconfigured, Unavailable
from turnout.fleet.hosts.kubernetes.cluster_secret import ClusterSecret
from turnout.run.bootstrap import bootstrap
from turnout.run.config import Config
from turnout.run.open_stores import open_key_store
from turnout.tenants.key_rules import Role, matches, split_token


@dataclass
class SecretServer:
    """One Secret. A patch of another version than the one that is there is refused."""

    account: Path
    data: dict[str, str] = field(default_factory=dict[str, str])
    version: int = 1
    patched: list[set[str]] = field(default_factory=list[set[str]])
    url: str = ""

    @property
    def secret(self) -> ClusterSecret:
        return ClusterSecret("own", self.url, self.account)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await reader.readuntil(b"\r\n\r\n")).decode() if not reader.at_eof() else "":
            fields = dict(line.split(": ", 1) for line in head.lower().split("\r\n")[1:] if ": " in line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            status, answer = self.answer(head, fields, json.loads(body or b"null"))
            text = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text))

    def answer(self, head: str, fields: dict[str, str], body: Any) -> tuple[int, Any]:
        method, path, _ = head.split(" ", 2)
        if fields.get("authorization") != "bearer token" or path != "/api/v1/namespaces/ns/secrets/own":
            return 403, {}
        if method == "PATCH":
            assert fields["content-type"] == "application/merge-patch+json"
            if body["metadata"]["resourceVersion"] != str(self.version):
                return 409, {}
            self.patched.append(set(body["stringData"]))
            self.data |= {k: base64.b64encode(v.encode()).decode() for k, v in body["stringData"].items()}
            self.version += 1
        return 200, {"metadata": {"resourceVersion": str(self.version)}, "data": self.data or None}

    def value(self, name: str) -> str:
        return base64.b64decode(self.data[name]).decode()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SecretServer]:
    (tmp_path / "token").write_text("token")
    (tmp_path / "namespace").write_text("ns")
    stand = SecretServer(tmp_path)
    listening = await asyncio.start_server(stand.serve, "127.0.0.1", 0)
    stand.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield stand
    listening.close()


@pytest.fixture
def config(valkey: str, tmp_path: Path) -> Config:
    return Config().with_settings(redis_url=valkey, redis_prefix=secrets.token_hex(4), state_dir=tmp_path)


async def known_roles(config: Config, server: SecretServer) -> dict[str, Role]:
    """Of the Secret's tokens, what each may do."""
    found: dict[str, Role] = {}
    async with open_key_store(config) as (store, _):
        for name in ("admin-key", "worker-key"):
            key_id, secret = split_token(server.value(name)) or ("", "")
            if (key := await store.find(key_id)) and matches(key, secret):
                found[name] = key.role
    return found


async def test_an_empty_secret_is_filled_and_its_keys_work(config: Config, server: SecretServer) -> None:
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert await known_roles(config, server) == {"admin-key": Role.ADMIN, "worker-key": Role.WORKER}
    # Pods wait for the webhook secret, and must find keys then.
    assert server.patched == [{"redis-password", "ray-token", "admin-key", "worker-key"}, {"webhook-secret"}]
    before = dict(server.data)
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert server.data == before and len(server.patched) == 2


async def test_a_key_that_was_revoked_does_not_come_back(config: Config, server: SecretServer) -> None:
    await bootstrap(config, server.secret, 10, own_redis=False)
    async with open_key_store(config) as (store, _):
        key_id, _ = split_token(server.value("admin-key")) or ("", "")
        await store.revoke(key_id)
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert await known_roles(config, server) == {"worker-key": Role.WORKER}


async def test_a_secret_that_was_filled_anew_gets_its_keys_into_the_redis_that_stayed(
    config: Config, server: SecretServer
) -> None:
    """An installation that was removed and made again: the claim of Redis stayed, the Secret went."""
    await bootstrap(config, server.secret, 10, own_redis=False)
    first = server.data
    server.data = {}
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert server.data.keys() == first.keys() and server.data["admin-key"] != first["admin-key"]
    assert await known_roles(config, server) == {"admin-key": Role.ADMIN, "worker-key": Role.WORKER}
    async with open_key_store(config) as (_, audit):
        made = [entry for _, entry in await audit.newest(10)]
    assert [(one.actor, one.action) for one in made] == [("bootstrap", "key.created")] * 4
    server.data = first  # as from a backup of the Secret
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert await known_roles(config, server) == {"admin-key": Role.ADMIN, "worker-key": Role.WORKER}


async def test_a_bootstrap_that_died_before_it_reached_redis_is_made_up_for(
    config: Config, server: SecretServer
) -> None:
    await bootstrap(config, server.secret, 10, own_redis=False)
    server.data = {}
    with pytest.raises(TimeoutError):
        await bootstrap(
            config.with_settings(redis_url="redis://127.0.0.1:1"), server.secret, 0.5, own_redis=False
        )
    assert "admin-key" in server.data
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert await known_roles(config, server) == {"admin-key": Role.ADMIN, "worker-key": Role.WORKER}


async def test_a_key_that_somebody_put_into_the_secret_and_revoked_does_not_come_back(
    config: Config, server: SecretServer
) -> None:
    await bootstrap(config, server.secret, 10, own_redis=False)
    server.data["worker-key"] = base64.b64encode(b"tk-00112233.rotated").decode()
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert await known_roles(config, server) == {"admin-key": Role.ADMIN}


async def test_keys_of_ones_own_are_taken_and_what_is_none_is_refused(
    config: Config, server: SecretServer
) -> None:
    server.data = {"admin-key": base64.b64encode(b"tk-00112233.mine").decode()}
    await bootstrap(config, server.secret, 10, own_redis=False)
    assert server.value("admin-key") == "tk-00112233.mine"
    assert (await known_roles(config, server))["admin-key"] is Role.ADMIN
    server.data["admin-key"] = base64.b64encode(b"password").decode()
    with pytest.raises(Misconfigured, match="admin-key"):
        await bootstrap(config, server.secret, 10, own_redis=False)


async def test_the_installations_own_redis_takes_the_password_that_was_made(
    config: Config, server: SecretServer
) -> None:
    with pytest.raises(TimeoutError):  # this one has another password
        await bootstrap(config, server.secret, 0.5, own_redis=True)
    assert "webhook-secret" not in server.data


async def test_an_account_without_the_right_is_told(config: Config, server: SecretServer) -> None:
    (server.account / "token").write_text("stranger")
    with pytest.raises(Unavailable, match="403"):
        await bootstrap(config, server.secret, 10, own_redis=False)
