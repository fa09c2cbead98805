"""Models and workers over HTTP: who may do what, and what is refused."""

from typing import Any

import pytest
from tests.gateway.conftest import Gateway

from turnout.domain.keys import Role

MODEL = {"alias": "qwen", "engine": "vllm", "model_name": "Qwen/Qwen3-8B", "tensor_parallel_size": 2}
MACHINE = {"gpus": [], "memory_bytes": 8, "free_memory_bytes": 8}
JOIN = {"name": "box", "url": "tunnel:", "machine": MACHINE, "probe_key": "k" * 32}


async def bearer(gateway: Gateway, role: Role) -> dict[str, str]:
    return {"Authorization": f"Bearer {await gateway.key(role=role)}"}


async def test_a_registered_model_is_listed_and_shown_and_removed(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    answer = await gateway.http.post("/v1/models/register", json=MODEL)
    assert (answer.status_code, answer.json()["engine"]) == (200, "vllm")
    assert "qwen" in [m["id"] for m in (await gateway.http.get("/v1/models")).json()["data"]]
    assert (await gateway.http.get("/v1/models/qwen")).json()["model_name"] == "Qwen/Qwen3-8B"
    assert (await gateway.http.delete("/v1/models/qwen")).json()["deleted"]
    assert (await gateway.http.delete("/v1/models/qwen")).status_code == 404


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"alias": "no spaces"}, 400, "alias"),
        ({"alias": "wan-tiny-t2v"}, 409, "alias"),
        ({"engine": "wan"}, 400, "engine"),
        ({"engine": "rocket"}, 400, "engine"),
        ({"engine": "command", "command": ["sh", "-c", "{port}"]}, 403, "engine"),
        ({"arguments": ["--chat-template=/etc/passwd"]}, 400, "arguments"),
        ({"arguments": ["--trust-remote-code"]}, 400, "arguments"),
        ({"dtype": "-x"}, 400, "dtype"),
        ({"concurrency": 0}, 400, "concurrency"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
async def test_a_model_that_is_not_safe_or_not_sound_is_refused(
    gateway: Gateway, changes: dict[str, Any], status: int, param: str
) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    answer = await gateway.http.post("/v1/models/register", json={**MODEL, **changes})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text


async def test_only_admins_register_and_only_workers_join(gateway: Gateway) -> None:
    user, worker = await bearer(gateway, Role.USER), await bearer(gateway, Role.WORKER)
    assert (await gateway.http.post("/v1/models/register", json=MODEL, headers=user)).status_code == 403
    assert (await gateway.http.get("/workers", headers=user)).status_code == 403
    assert (await gateway.http.post("/workers/register", json=JOIN, headers=user)).status_code == 403
    assert (await gateway.http.post("/workers/register", json=JOIN, headers=worker)).status_code == 200


async def test_a_worker_cannot_pass_for_another(gateway: Gateway) -> None:
    key = await bearer(gateway, Role.WORKER)
    first = (await gateway.http.post("/workers/register", json=JOIN, headers=key)).json()
    stolen = {**JOIN, "known_as": first["id"], "secret": "guess"}
    assert (await gateway.http.post("/workers/register", json=stolen, headers=key)).status_code == 403
    beat = {"machine": MACHINE, "replicas": []}
    path = f"/workers/{first['id']}/heartbeat"
    assert (await gateway.http.post(path, json=beat, headers=key)).status_code == 401
    mine = {"Authorization": f"Bearer {first['secret']}"}
    assert (await gateway.http.post(path, json=beat, headers=mine)).json() == {
        "version": 0,
        "orders": [],
        "gateways": [gateway.app.state.lines.name],
    }
    again = {**JOIN, "known_as": first["id"], "secret": first["secret"]}
    assert (await gateway.http.post("/workers/register", json=again, headers=key)).json()["id"] == first["id"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "http://user:pw@10.0.0.7",
        "nonsense",
        "http://10.0.0.7/x",
        "http://10.0.0.7?x",
        "http://[",
        "http://h:0",
    ],
)
async def test_a_worker_must_say_where_it_is(gateway: Gateway, url: str) -> None:
    key = await bearer(gateway, Role.WORKER)
    answer = await gateway.http.post("/workers/register", json={**JOIN, "url": url}, headers=key)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "url")
