"""`turnout doctor`: finds what is wrong, says what to do, and hurts nothing."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from tests.cli.conftest import Cli, valkey_server
from tests.cli.scripted import TOKEN, Answer, ScriptedGateway
from tests.ports import free_port

from turnout.cli.doctor import machine_checks, model_checks, service_checks
from turnout.cli.doctor_command import foresee
from turnout.cli.options import Common
from turnout.errors import Unavailable
from turnout.fleet.machine_rules import Gpu
from turnout.fleet.model_rules import EngineKind, Model, Needs, ServerPart
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause, describe
from turnout.run.config import Config, load
from turnout.store.server_facts import read_server_facts
from turnout.store.store_settings import AcceptAfter
from turnout.worker.gpus import GpuFinding, find_gpus, pynvml


@pytest.fixture(params=["yes", "no"])
def valkey(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, bool]]:
    """A real server behind a password, with and without an append-only file."""
    with valkey_server(tmp_path, request.param) as url:
        yield url, request.param == "yes"


def test_the_whole_examination(bare_cli: Cli, tmp_path: Path) -> None:
    done = bare_cli("doctor", "--json", TURNOUT_PORT=str(free_port()))
    found = {finding["what"]: finding for finding in json.loads(done.out)}
    assert {"python", "config", "state dir", "disk", "redis", "clock", "port", "server", "gpus"} <= set(found)
    assert {"torch", "diffusers", "av"} <= set(found)
    assert done.code == (1 if any(f["ok"] is False for f in found.values()) else 0)
    assert found["redis"]["ok"] and found["redis"]["detail"].startswith("embedded Valkey")
    assert found["port"]["ok"] and found["server"]["ok"] is None
    assert all(f["todo"] for f in found.values() if f["ok"] is False)
    assert not (tmp_path / "state").exists(), "looking makes nothing"


def test_a_port_that_something_else_has(gateway: ScriptedGateway) -> None:
    gateway.hooks["GET health"] = lambda _: Answer(404, {})
    finding = service_checks.check_port(Config().with_settings(port=gateway.port))
    assert finding.ok is False and "--port" in finding.todo
    gateway.hooks["GET health"] = lambda _: Answer(200, {"status": "ok", "version": "0"})
    finding = service_checks.check_port(Config().with_settings(port=gateway.port))
    assert finding.ok is True and "Turnout is there" in finding.detail


def test_a_server_that_is_not_ready_says_which_part(gateway: ScriptedGateway) -> None:
    common = Common(url=gateway.url)
    gateway.hooks["GET ready"] = lambda _: Answer(200, {"status": "ready", "parts": {"redis": "ok"}})
    assert service_checks.check_server(common).ok is True
    gateway.hooks["GET ready"] = lambda _: Answer(
        503, {"status": "not_ready", "parts": {"redis": "is down", "blobs": "ok"}}
    )
    finding = service_checks.check_server(common)
    assert finding.ok is False and finding.detail.endswith("not ready: redis: is down")
    gateway.vanish()
    assert "nothing answers" in service_checks.check_server(common).detail
    gateway.listen()


def test_redis_is_asked_for_version_and_durability(valkey: tuple[str, bool]) -> None:
    url, durable = valkey
    redis, clock = service_checks.check_redis(Config().with_settings(redis_url=url))
    assert redis.ok is durable, redis.detail
    assert clock.ok and clock.detail == "agrees with Redis"
    if not durable:
        assert "appendonly yes" in redis.todo
        with pytest.raises(Unavailable, match="username-password pair"):
            read_server_facts(url.replace("p%25w", "guess"))


@pytest.mark.parametrize(
    ("settings", "accept_after", "said"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "fsync", "noeviction"),
        ({"appendfsync": "everysec"}, "write", "appendfsync always"),
        ({"appendfsync": "everysec"}, "fsync", ""),
        ({"appendfsync": "always"}, "write", ""),
        ({"appendfsync": "always"}, "replica", "until it has one"),
    ],
)
def test_a_redis_that_may_lose_tasks_is_named(
    tmp_path: Path, settings: dict[str, str], accept_after: AcceptAfter, said: str
) -> None:
    with valkey_server(tmp_path, "yes") as url:
        with Redis.from_url(url) as client:
            for name, value in settings.items():
                client.config_set(name, value)
        finding, _ = service_checks.check_redis(
            Config().with_settings(redis_url=url, accept_after=accept_after)
        )
    assert finding.ok is (not said) and said in finding.todo, finding.line


def test_a_redis_that_is_not_there(gateway: ScriptedGateway) -> None:
    finding, _ = service_checks.check_redis(
        Config().with_settings(redis_url=f"redis://:hush@127.0.0.1:{free_port()}")
    )
    assert finding.ok is False and "hush" not in finding.line
    finding, _ = service_checks.check_redis(
        Config().with_settings(redis_url=f"redis://127.0.0.1:{gateway.port}")
    )
    assert finding.ok is False, "a web server is no Redis"


def test_a_state_dir_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert machine_checks.check_state_dir(file).ok is False
    assert machine_checks.check_state_dir(tmp_path / "new" / "dir").ok is True
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert machine_checks.check_state_dir(locked / "state").ok is (os.geteuid() == 0)


def test_clocks_that_disagree() -> None:
    assert service_checks.check_clock(0.0).ok is False


def test_a_model_for_gpus_makes_a_missing_gpu_wrong(bare_cli: Cli) -> None:
    config = Common().load().config
    none = GpuFinding(reason="no GPU and no NVIDIA driver here")
    assert machine_checks.check_gpus(config, none).ok is None
    needy = replace(config, models=(Model("m", EngineKind.VLLM, "w", Needs(gpus=1)),))
    finding = machine_checks.check_gpus(needy, none)
    assert finding.ok is False and finding.todo == "needed by m"


def test_a_driver_that_must_be_mended_is_wrong_whoever_needs_it(bare_cli: Cli) -> None:
    broken = GpuFinding(reason="NVIDIA's driver was updated: restart the machine", broken=True)
    finding = machine_checks.check_gpus(Common().load().config, broken)
    assert finding.ok is False and "restart" in finding.detail


def test_gpus_and_their_memory_are_listed(bare_cli: Cli) -> None:
    found = GpuFinding((Gpu(0, 140 << 30, 100 << 30, "NVIDIA H200"),))
    finding = machine_checks.check_gpus(Common().load().config, found)
    assert finding.ok is True and finding.detail == "NVIDIA H200 (100 of 140 GiB free)"


def test_a_gpu_is_told_as_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process writes what it found as JSON."""
    found = GpuFinding((Gpu(0, 2, 1, "NVIDIA H200"),), capability=(9, 0))
    told = json.loads(json.dumps(asdict(found)))
    monkeypatch.setattr(machine_checks, "finish_probe", lambda *_: (told, ""))
    assert machine_checks.find_gpus() == found


def test_doctor_looks_for_gpus_as_a_worker_does() -> None:
    found, here = machine_checks.find_gpus(), find_gpus(pynvml())
    assert [gpu.name for gpu in found.gpus] == [gpu.name for gpu in here.gpus]
    assert (found.reason, found.broken) == (here.reason, here.broken)


def test_a_library_that_breaks_on_import_is_wrong_not_fatal() -> None:
    config = Common().load().config
    broken = machine_checks.check_torch(
        machine_checks.start_probe("raise OSError('libcudart.so.12 is missing')"), config
    )
    assert broken.ok is False and "libcudart.so.12" in broken.detail
    slow, problem = machine_checks.finish_probe(
        machine_checks.start_probe("import time; time.sleep(60)"), 0.2
    )
    assert slow == {} and "did not answer within" in problem


def test_engines_are_looked_for_with_their_weights(tmp_path: Path) -> None:
    def served(engine: EngineKind, weights: str, **server: Any) -> Model:
        return Model("m", engine, weights, server=ServerPart(**server))

    def check(*models: Model) -> list[bool | None]:
        return [finding.ok for finding in model_checks.check_engines(Config().with_settings(models=models))]

    assert check(served(EngineKind.LLAMACPP, "builtin:smollm2")) == [True]
    assert check(served(EngineKind.LLAMACPP, "builtin:nothing")) == [False]
    assert check(served(EngineKind.LLAMACPP, str(tmp_path))) == [True]
    assert check(served(EngineKind.LLAMACPP, str(tmp_path / "none.gguf"))) == [False]
    assert check(served(EngineKind.COMMAND, "", command=("no-such-program", "{port}"))) == [False]
    assert check(served(EngineKind.COMMAND, "", command=("sh", "{port}"))) == [True]
    assert check() == []


def test_models_that_cannot_be_served_are_named(gateway: ScriptedGateway) -> None:
    common = Common(url=gateway.url, api_key=TOKEN)
    assert list(model_checks.check_status(common)) == []

    def model(name: str, status: ModelStatus, kind: str = "chat") -> dict[str, str | None]:
        said = {"status": describe(status), "state": status.state, "cause": status.cause}
        return {"id": name, "kind": kind, "engine": "vllm", **said}

    good = model("a", ModelStatus(ModelState.STOPPED))
    gateway.models = [model("v", ModelStatus(ModelState.ASLEEP), "video"), good]
    (finding,) = model_checks.check_status(common)
    assert finding.ok is True and finding.detail == "v: asleep; a: not started: nobody asks for it"
    for status in (
        ModelStatus(ModelState.FAILED, failures=2, reason="it ran out of memory", retry_s=4.0),
        ModelStatus(ModelState.WAITING, StatusCause.NO_WORKER, for_s=3.0),
    ):
        gateway.models = [good, model("b", status)]
        (finding,) = model_checks.check_status(common)
        assert finding.ok is False and finding.detail == f"b: {describe(status)}"


def test_an_object_store_is_asked(s3: str) -> None:
    def check(blobs: str) -> list[bool | None]:
        return [
            finding.ok
            for finding in service_checks.check_blobs(Config().with_settings(blobs=blobs, blobs_endpoint=s3))
        ]

    assert check("s3://vid/some") == [True]
    assert check("s3://no-such-bucket/some") == [False]
    assert check("/a/directory") == []


def test_the_doctor_shows_what_the_state_directory_holds_and_its_quota(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "a.mp4").write_bytes(os.urandom(3 * 2**20))
    (tmp_path / "service.json").write_text("{}")
    unbounded = machine_checks.check_state_size(Config().with_settings(state_dir=tmp_path))
    assert unbounded.ok and "objects" in unbounded.detail and "no quota" in unbounded.detail
    assert machine_checks.check_state_size(
        Config().with_settings(state_dir=tmp_path, state_quota_bytes=2**30)
    ).ok
    over = machine_checks.check_state_size(
        Config().with_settings(state_dir=tmp_path, state_quota_bytes=2**20)
    )
    assert over.ok is False and "retention_s" in over.todo
    assert machine_checks.check_state_size(Config().with_settings(state_dir=tmp_path / "none")).ok


def test_what_will_fail_later_is_foreseen(tmp_path: Path) -> None:
    models = {
        "qwen": {"engine": "vllm", "weights": "Qwen/Qwen3-8B", "gpus": 1},
        "clips": {"weights": str(tmp_path / "none"), "family": "wan2.2-ti2v-5b"},
        "tiny": {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"},
    }
    config = load({"models": models, "vllm": "no-such-vllm", "blobs": "s3://b/p"}, {}).config
    config = config.with_settings(blobs_endpoint="http://127.0.0.1:9")
    assert {finding.what for finding in foresee(config)} == {"vllm", "clips", "objects"}
