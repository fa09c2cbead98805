"""Models are pulled by name onto the machine of the service: judged before, followed, cancelled, gone on with."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.conftest import wait_until
from tests.engines.fake_hub import FakeHub, fake_hub
from tests.gateways import Gateway, bearer, running

from turnout.engines.servers.engine_servers import check_served
from turnout.engines.wan.builtin import present_weights
from turnout.fleet.catalogue import catalogue
from turnout.fleet.declared_models import read_model
from turnout.fleet.family_rules import FAMILIES
from turnout.stores import Stores
from turnout.tenants.key_rules import Role

GGUF = "Qwen3-0.6B-Q8_0.gguf"
TINY = "transformer/diffusion_pytorch_model.safetensors"


@pytest.mark.parametrize("name", catalogue().models)
def test_every_declaration_of_the_catalogue_is_one_that_the_service_takes(name: str) -> None:
    one = catalogue().models[name]
    model = read_model(one.declaration(name, Path("/models") / one.repo))
    check_served(model)
    assert one.about.keys() == {"en", "zh"}
    family = one.register.get("family")
    if model.video is not None:
        assert family in FAMILIES and model.weights == one.repo
    else:
        assert model.weights.startswith("/models/")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A whole tiny Wan model, and a file for llama.cpp."""
    folder = present_weights("builtin:wan-tiny-t2v", tmp_path / "made")
    assert folder is not None
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with fake_hub({**found, GGUF: b"GGUF" * 5000, "other.gguf": b"x" * 100}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
        yield hub


@pytest_asyncio.fixture
async def pulling(stores: Stores, tmp_path: Path, hub: FakeHub) -> AsyncIterator[Gateway]:
    async with running(stores, tmp_path, model_pulls=True) as gateway:
        gateway.http.headers.update(bearer(await gateway.key("ops", Role.ADMIN)))
        yield gateway


async def _pull(gateway: Gateway, state: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def is_so() -> bool:
        found[:] = (await gateway.http.get("/v1/pulls")).json()["data"]
        return bool(found) and found[0]["state"] == state

    await wait_until(is_so, f"the pull to be {state}: {found}", 60)
    return found[0]


async def test_a_model_is_judged_before_it_is_pulled(pulling: Gateway, hub: FakeHub, tmp_path: Path) -> None:
    asked = await pulling.http.post("/v1/pulls/check", json={"repo": "org/tiny"}, timeout=90)
    said = asked.json()
    assert asked.status_code == 200, asked.text
    assert said["fits"] is None and "no GPU" in said["words"]
    assert said["parts"] == [{"code": "no_gpu", "params": {}}]
    assert said["download_bytes"] == sum(map(len, hub.contents.values()))
    assert not (tmp_path / "models" / "org").exists(), "nothing is pulled"
    gone = await pulling.http.post("/v1/pulls/check", json={"repo": "org/none"}, timeout=90)
    assert (gone.status_code, gone.json()["error"]["code"]) == (400, "not_at_hub")
    assert "no such model" in gone.json()["error"]["message"]


async def test_a_model_is_judged_for_two_at_once(pulling: Gateway) -> None:
    """They shared a log, which the first to end removed: the other was answered 500."""
    answers = await asyncio.gather(
        *(pulling.http.post("/v1/pulls/check", json={"repo": "org/tiny"}, timeout=90) for _ in range(2))
    )
    assert [one.status_code for one in answers] == [200, 200], [one.text for one in answers]
    assert {one.json()["words"] for one in answers} == {answers[0].json()["words"]}


async def test_a_model_of_the_catalogue_is_pulled_by_name_and_can_be_registered(
    pulling: Gateway, tmp_path: Path
) -> None:
    body = {"name": "qwen3-0.6b", "hub": "modelscope"}
    started = await pulling.http.post("/v1/pulls", json=body)
    assert (started.status_code, started.json()["state"]) == (200, "waiting")
    done = await _pull(pulling, "completed")
    assert done["bytes"] == done["of"] == 20_000
    folder = tmp_path / "models/Qwen/Qwen3-0.6B-GGUF"
    assert [path.name for path in folder.glob("*.gguf")] == [GGUF], "what it needs, and no more"
    made = await pulling.http.post("/v1/models/register", json=done["register_as"])
    assert made.status_code == 200, made.text
    audit = (await pulling.http.get("/v1/audit", params={"query": "model.pulled"})).json()["data"]
    assert [entry["target"] for entry in audit] == ["Qwen/Qwen3-0.6B-GGUF"]


async def test_a_pull_is_cancelled_and_goes_on_where_it_was(
    pulling: Gateway, hub: FakeHub, tmp_path: Path
) -> None:
    hub.stall = (TINY, 100_000)
    pull = (await pulling.http.post("/v1/pulls", json={"repo": "org/tiny"})).json()
    part = tmp_path / "models/org/tiny" / f"{TINY}.part"
    await wait_until(lambda: part.exists() and part.stat().st_size == 100_000, "the file to stop", 60)
    whole = sum(map(len, hub.contents.values()))

    async def told() -> bool:
        [pull] = (await pulling.http.get("/v1/pulls")).json()["data"]
        return pull["state"] == "running" and 100_000 <= pull["bytes"] < pull["of"] == whole

    await wait_until(told, "how far it is", 60)
    again = (await pulling.http.post("/v1/pulls", json={"repo": "org/tiny"})).json()
    assert (again["id"], again["state"]) == (pull["id"], "running"), "asked for twice is once"
    cancelled = await pulling.http.delete(f"/v1/pulls/{pull['id']}")
    assert cancelled.json()["state"] == "cancelled"
    hub.stall = None
    hub.ranges.clear()
    await pulling.http.post("/v1/pulls", json={"repo": "org/tiny"})
    await _pull(pulling, "completed")
    assert (TINY, "bytes=100000-") in hub.ranges
    assert present_weights("org/tiny", tmp_path / "models") == tmp_path / "models/org/tiny"
    assert (await pulling.http.delete(f"/v1/pulls/{pull['id']}")).status_code == 200
    assert (await pulling.http.get("/v1/pulls")).json()["data"] == []


async def test_a_pull_goes_on_under_the_next_gateway(stores: Stores, tmp_path: Path, hub: FakeHub) -> None:
    hub.stall = (TINY, 100_000)
    part = tmp_path / "models/org/tiny" / f"{TINY}.part"
    async with running(stores, tmp_path, model_pulls=True) as gateway:
        admin = bearer(await gateway.key("ops", Role.ADMIN))
        await gateway.http.post("/v1/pulls", json={"repo": "org/tiny"}, headers=admin)
        await wait_until(lambda: part.exists() and part.stat().st_size == 100_000, "the file to stop", 60)
    hub.stall = None
    async with running(stores, tmp_path, model_pulls=True) as gateway:
        gateway.http.headers.update(admin)
        await _pull(gateway, "completed")


async def test_what_fails_says_why_and_only_admins_pull(pulling: Gateway) -> None:
    await pulling.http.post("/v1/pulls", json={"repo": "org/none"})
    failed = await _pull(pulling, "failed")
    assert "no such model" in failed["reason"] and failed["reason_code"] == "not_at_hub"
    user = bearer(await pulling.key())
    for method, path in (("GET", "/v1/pulls"), ("POST", "/v1/pulls"), ("GET", "/v1/catalogue")):
        answer = await pulling.http.request(method, path, headers=user, json={"repo": "a/b"})
        assert answer.status_code == 403
    bodies: tuple[dict[str, Any], ...] = (
        {},
        {"repo": "../x"},
        {"repo": "a/b", "name": "c"},
        {"name": "none"},
        {"repo": "a/b", "hub": "https://evil"},
        {"repo": "--to/x"},
    )
    for wrong in bodies:
        assert (await pulling.http.post("/v1/pulls", json=wrong)).status_code in (400, 404), wrong


async def test_nothing_is_pulled_where_the_worker_is_elsewhere(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    assert (await gateway.http.get("/v1/pulls", headers=admin)).json()["offered"] is False
    answer = await gateway.http.post("/v1/pulls", json={"repo": "a/b"}, headers=admin)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "pulls_not_offered")
