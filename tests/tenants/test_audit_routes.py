"""Every act on keys, models and workers is recorded first, for all gateways, without a secret."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores
from tests.fleet.test_probe import MACHINE
from tests.gateways import Gateway, bearer, running

from turnout.errors import Unavailable
from turnout.fleet.worker_rules import TUNNEL
from turnout.tenants.audit_rules import AuditAction, AuditEntry
from turnout.tenants.key_rules import Role, split_token

MODEL = {"alias": "m1", "engine": "llamacpp", "model_name": "builtin:smollm2", "memory_bytes": 1000}


async def test_what_admins_and_workers_do_is_recorded_without_a_secret(
    gateway: Gateway, stores: Stores, tmp_path: Path
) -> None:
    token = await gateway.key("ops", Role.ADMIN)
    admin, http = bearer(token), gateway.http
    made = (await http.post("/v1/keys", json={"tenant": "beta", "name": "ci"}, headers=admin)).json()
    turned = (await http.post(f"/v1/keys/{made['id']}/rotate", json={}, headers=admin)).json()
    await http.delete(f"/v1/keys/{made['id']}", headers=admin)
    assert (await http.post("/v1/models/register", json=MODEL, headers=admin)).status_code == 200
    await http.delete("/v1/models/m1", headers=admin)
    worker = bearer(await gateway.key("ops", Role.WORKER))
    joining = {"name": "gpu1", "url": TUNNEL, "probe_key": "x" * 32, "machine": MACHINE}
    joined = (await http.post("/workers/register", json=joining, headers=worker)).json()
    await http.post(f"/workers/{joined['id']}/drain", json={"draining": True}, headers=admin)
    async with running(stores, tmp_path) as another:  # of the same service
        answer = await another.http.get("/v1/audit", headers=admin)
        parts = split_token(token)
        assert parts is not None
        entries = answer.json()["data"][::-1]
        assert [(e["action"], e["target"]) for e in entries] == [
            ("key.created", made["id"]),
            ("key.rotated", made["id"]),
            ("key.revoked", made["id"]),
            ("model.registered", "m1"),
            ("model.removed", "m1"),
            ("worker.registered", joined["id"]),
            ("worker.drained", joined["id"]),
        ]
        assert {e["actor"] for e in entries if e["action"] != "worker.registered"} == {parts[0]}
        assert all(e["address"] for e in entries)
        secrets = [made["token"], turned["token"], joined["secret"], token]
        assert not any(secret.rpartition(".")[2] in answer.text for secret in secrets)
        page = (await another.http.get("/v1/audit?limit=3", headers=admin)).json()
        rest = await another.http.get(f"/v1/audit?limit=4&before={page['data'][-1]['id']}", headers=admin)
        assert (page["data"] + rest.json()["data"], page["has_more"]) == (answer.json()["data"], True)
        assert rest.json()["has_more"] is False
        assert (await another.http.get("/v1/audit")).status_code == 403  # a user's key


async def test_nothing_is_done_that_cannot_be_recorded(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("Redis is away")

    admin = bearer(await gateway.key("ops", Role.ADMIN))
    monkeypatch.setattr(gateway.stores.tenants.audit, "add", away)
    before = await gateway.stores.tenants.keys.all()
    assert (await gateway.http.post("/v1/keys", json={}, headers=admin)).status_code == 503
    assert (await gateway.http.post("/v1/models/register", json=MODEL, headers=admin)).status_code == 503
    assert await gateway.stores.tenants.keys.all() == before
    assert "m1" not in json.dumps((await gateway.http.get("/v1/models")).json())


async def test_the_log_is_bounded(stores: Stores) -> None:
    client: Any = stores.link.client
    async with client.pipeline(transaction=False) as pipe:
        for _ in range(25_000):
            pipe.xadd(stores.link.keys.audit(), {b"entry": b"{}"})
        await pipe.execute()
    await stores.tenants.audit.add(AuditEntry(1.0, "k", AuditAction.KEY_CREATED, "k2"))
    assert await client.xlen(stores.link.keys.audit()) < 20_500
    ((_, newest),) = await stores.tenants.audit.newest(1)
    assert newest.target == "k2"
