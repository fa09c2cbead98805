"""Models and workers over HTTP: who may do what, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.gateways import Gateway

from turnout.fleet.publication import Publication
from turnout.fleet.route_rules import ModelRoutes
from turnout.tenants import audit_trail
from turnout.tenants.key_rules import Role

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


OLDER = {"alias": "q", "model_name": "Qwen/Qwen3-8B", "max_model_len": 4096, "gpu_memory_utilization": 0.5}


async def test_the_older_interface_registers_without_an_engine(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    answer = await gateway.http.post("/v1/models/register", json=OLDER)
    assert answer.status_code == 200
    assert answer.json()["notice"].startswith("no worker has joined: start one with `turnout worker")
    shown = (await gateway.http.get("/v1/models/q")).json()
    assert (shown["engine"], shown["max_model_len"], shown["gpu_memory_utilization"]) == ("vllm", 4096, 0.5)


async def test_a_registration_says_at_once_that_no_worker_can_run_the_model(gateway: Gateway) -> None:
    key = await bearer(gateway, Role.WORKER)
    joined = (await gateway.http.post("/workers/register", json=JOIN, headers=key)).json()
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))

    async def notice(body: Mapping[str, object] = OLDER, **machine: object) -> str | None:
        beat = {"machine": {**MACHINE, **machine}, "replicas": [], "wait_s": 0}
        own = {"Authorization": f"Bearer {joined['secret']}"}
        path = f"/workers/{joined['id']}/heartbeat"
        assert (await gateway.http.post(path, json=beat, headers=own)).status_code == 200
        return (await gateway.http.post("/v1/models/register", json=body)).json()["notice"]

    gpu = {"index": 0, "total_bytes": 80, "free_bytes": 80}
    assert "install vLLM where a worker runs" in str(await notice(engines=["llamacpp"]))
    assert await notice(engines=["vllm"]) == "it needs 1 GPUs and no worker has more than 0"
    assert await notice(engines=["vllm"], gpus=[gpu]) is None
    wide = {"alias": "wide", "engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"}
    said = await notice({**wide, "device": "cuda", "ulysses": 2}, engines=["wan"], gpus=[gpu])
    assert said and said.startswith("it needs 2 GPUs and no worker has more than 1; over several machines")
    assert "a network in which they call each other" in said


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"alias": "no spaces"}, 400, "alias"),
        ({"engine": "wan"}, 400, "family"),
        ({"family": "wan-tiny-t2v"}, 400, "family"),
        ({"engine": "wan", "family": "wan-huge"}, 400, "family"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "ulysses": 3}, 400, "ulysses"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "rules": {"colour": 1}}, 400, "rules"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "rules": {"heads": "many"}}, 400, "rules"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "device": "abacus"}, 400, "device"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "dtype": "int3"}, 400, "dtype"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "gpus": 3}, 400, "gpus"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "model_name": "--x"}, 400, "weights"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "video_engine": "os:system"}, 403, "video_engine"),
        ({"engine": "wan", "video_engine": "../x"}, 400, "video_engine"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "runner": "nobody"}, 400, "runner"),
        ({"runner": "external"}, 400, "runner"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "loras": {"a": {}}}, 400, "loras"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "loras": {"a": {"colour": 1}}}, 400, "loras"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "loras": {"a": 3}}, 400, "loras"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "loras": {"../a": "/l"}}, 400, "loras"),
        ({"engine": "wan", "family": "wan-tiny-t2v", "usual_loras": ["b"]}, 400, "usual_loras"),
        ({"min_replicas": 2}, 400, "min_replicas"),
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


async def test_one_worker_key_does_not_fill_the_audit_log(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each registration is an entry: a key that was found pushed out what admins did."""
    monkeypatch.setattr(audit_trail, "A_WORKER_KEYS_WAYS_IN", 2)
    found, another = await bearer(gateway, Role.WORKER), await bearer(gateway, Role.WORKER)
    answers = [await gateway.http.post("/workers/register", json=JOIN, headers=found) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["error"]["code"] == "daily_limit"
    assert (await gateway.http.post("/workers/register", json=JOIN, headers=another)).status_code == 200


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
        "tokens": {},
        "gateways": [gateway.inside.name],
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


CLIPS = {"alias": "clips", "engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"}


async def test_a_video_model_registered_at_run_time_takes_tasks_until_it_is_removed(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    assert (await gateway.http.post("/v1/videos", json={"prompt": "x", "model": "clips"})).status_code == 404
    answer = await gateway.http.post(
        "/v1/models/register", json={**CLIPS, "cfg": 2, "rules": {"max_frames": 9, "default_frames": 5}}
    )
    assert answer.status_code == 200, answer.text
    shown = (await gateway.http.get("/v1/models/clips")).json()
    assert (shown["kind"], shown["engine"], shown["ranks"], shown["max_frames"]) == ("video", "wan", 2, 9)
    assert shown == {**answer.json(), "status": shown["status"], "cause": "not_looked_at"}
    needs = (await gateway.inside.stores.fleet.models.get("clips")).needs
    assert (needs.gpus, needs.memory_bytes) == (0, 2 * 2**30), "so that it competes for memory"
    video = (await gateway.http.post("/v1/videos", json={"prompt": "x", "model": "clips"})).json()
    assert (video["model"], video["frames"], video["queue_position"]) == ("clips", 5, 0)
    shown = (await gateway.http.get("/v1/models/clips")).json()
    assert (shown["waiting"], shown["running"]) == (1, 0)
    long = await gateway.http.post("/v1/videos", json={"prompt": "x", "model": "clips", "frames": 17})
    assert (long.status_code, long.json()["error"]["param"]) == (400, "frames")
    assert 'turnout_queue_length{model="clips"} 1.0' in (await gateway.http.get("/metrics")).text
    assert (await gateway.http.delete("/v1/models/clips")).status_code == 200
    assert (await gateway.http.post("/v1/videos", json={"prompt": "x", "model": "clips"})).status_code == 404
    assert 'model="clips"' not in (await gateway.http.get("/metrics")).text


async def test_ranks_on_gpus_need_a_gpu_each(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    body = {**CLIPS, "device": "cuda", "ulysses": 4, "cfg": 2, "gpu_memory_bytes": 40}
    assert (await gateway.http.post("/v1/models/register", json=body)).status_code == 200
    needs = (await gateway.inside.stores.fleet.models.get("clips")).needs
    assert (needs.gpus, needs.gpu_memory_bytes) == (8, 40)


async def test_a_chat_model_makes_no_videos(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    await gateway.http.post("/v1/models/register", json=MODEL)
    answer = await gateway.http.post("/v1/videos", json={"prompt": "x", "model": "qwen"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "wrong_kind")


async def test_a_video_that_no_machine_can_make_is_refused_with_the_reason(gateway: Gateway) -> None:
    assert await gateway.stores.mutex.hold("fleet", "m", 60)
    refused = ModelRoutes(refusal="no worker can run wan engines", video=True)
    said = Publication(routes={"wan-tiny-t2v": refused})
    assert await gateway.stores.fleet.manager_state.publish("fleet", "m", said)

    async def is_refused() -> bool:
        answer = await gateway.http.post("/v1/videos", json={"prompt": "x", "model": "wan-tiny-t2v"})
        return answer.status_code == 503 and "no worker can run wan engines" in answer.text

    await wait_until(is_refused, "the refusal")


async def test_admins_wake_and_stop_models(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    await gateway.http.post("/v1/models/register", json=MODEL)

    async def wishes() -> list[tuple[str, bool]]:
        return [(wish.model, wish.stop) for wish in await gateway.stores.fleet.demand.wishes()]

    assert (await gateway.http.post("/v1/models/qwen/wake")).json()["id"] == "qwen"
    assert await wishes() == [("qwen", False)]
    assert (await gateway.http.post("/v1/models/qwen/stop")).status_code == 200
    assert await wishes() == [("qwen", True)]
    await gateway.http.post("/v1/models/register", json={**MODEL, "min_replicas": 1})
    kept = await gateway.http.post("/v1/models/qwen/stop")
    assert (kept.status_code, kept.json()["error"]["code"]) == (409, "kept_awake")
    assert (await gateway.http.post("/v1/models/nothing/wake")).status_code == 404
    gateway.http.headers.update(await bearer(gateway, Role.USER))
    assert (await gateway.http.post("/v1/models/qwen/wake")).status_code == 403


async def test_a_version_is_registered_shown_changed_and_removed_before_its_model(gateway: Gateway) -> None:
    gateway.http.headers.update(await bearer(gateway, Role.ADMIN))
    version = {**MODEL, "alias": "qwen-next", "version_of": "qwen", "share": 0.1}
    refused = await gateway.http.post("/v1/models/register", json=version)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "version_of")
    for body in (MODEL, version):
        assert (await gateway.http.post("/v1/models/register", json=body)).status_code == 200
    shown = {
        m["id"]: (m["version_of"], m["share"]) for m in (await gateway.http.get("/v1/models")).json()["data"]
    }
    assert (shown["qwen"], shown["qwen-next"]) == ((None, 0.0), ("qwen", 0.1))
    path = "/v1/models/qwen-next/share"
    assert (await gateway.http.post(path, json={"share": 0.4})).json()["share"] == 0.4
    assert (await gateway.http.get("/v1/models/qwen-next")).json()["share"] == 0.4
    for wrong in ({"share": 1.5}, {"share": "half"}, {}, {"share": 0.1, "colour": 1}):
        assert (await gateway.http.post(path, json=wrong)).status_code == 400
    assert (await gateway.http.post("/v1/models/qwen/share", json={"share": 0.4})).status_code == 400
    assert (await gateway.http.post("/v1/models/none/share", json={"share": 0.4})).status_code == 404
    user = await bearer(gateway, Role.USER)
    assert (await gateway.http.post(path, json={"share": 0.4}, headers=user)).status_code == 403
    said = (await gateway.http.get("/metrics")).text
    assert 'turnout_model_share{model="qwen-next",version_of="qwen"} 0.4' in said
    first = await gateway.http.delete("/v1/models/qwen")
    assert (first.status_code, first.json()["error"]["code"]) == (409, "has_versions")
    for name in ("qwen-next", "qwen"):
        assert (await gateway.http.delete(f"/v1/models/{name}")).status_code == 200
