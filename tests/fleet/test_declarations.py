"""A model is declared once: every field means the same in turnout.yaml, over HTTP and on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.gateways import Gateway, bearer
from typer.testing import CliRunner

from turnout.cli.client import ApiClient
from turnout.cli.main import app
from turnout.engines.servers import llamacpp
from turnout.engines.wan import builtin
from turnout.errors import Misconfigured
from turnout.fleet.model_declaration import DECLARED, VIDEO_FIELDS
from turnout.fleet.model_rules import BUILTIN, BUILTIN_MODELS, EngineKind, Model, Needs
from turnout.run.config import dump, load
from turnout.tenants.key_rules import Role

CHAT = {"engine": "vllm", "model_name": "acme/small"}
COMMAND = {"engine": "command", "model_name": "/weights", "command": ["other", "{port}"]}
WAN = {"engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"}
SLEEPS = {**CHAT, "sleep": True}
# Of each field: what is declared besides it, its value, and its words on the command line.
SAMPLES: dict[str, tuple[dict[str, Any], Any, list[str]]] = {
    "engine": ({"model_name": "acme/small"}, "llamacpp", ["--engine", "llamacpp"]),
    "model_name": ({"engine": "llamacpp"}, "/weights/x.gguf", ["--model-name", "/weights/x.gguf"]),
    "gpus": (CHAT, 3, ["--gpus", "3"]),
    "gpu_memory_bytes": (CHAT, 40 * 2**30, ["--gpu-memory", "40GiB"]),
    "memory_bytes": (CHAT, 5 * 10**8, ["--memory", "500MB"]),
    "asleep_gpu_memory_bytes": (SLEEPS, 2**30, ["--asleep-gpu-memory", "1GiB"]),
    "min_replicas": (CHAT, 1, ["--min-replicas", "1"]),
    "max_replicas": (CHAT, 7, ["--max-replicas", "7"]),
    "idle_s": (CHAT, 0, ["--idle-s", "0"]),
    "load_timeout_s": (CHAT, 90.5, ["--load-timeout-s", "90.5"]),
    "start_s": (CHAT, 40.5, ["--start-s", "40.5"]),
    "concurrency": (CHAT, 8, ["--concurrency", "8"]),
    "sleep": (CHAT, True, ["--sleep"]),
    "asleep_s": (SLEEPS, 60, ["--asleep-s", "60"]),
    "max_model_len": (CHAT, 4096, ["--max-model-len", "4096"]),
    "gpu_memory_utilization": (CHAT, 0.5, ["--gpu-memory-utilization", "0.5"]),
    "tensor_parallel_size": (CHAT, 2, ["--tensor-parallel-size", "2"]),
    "dtype": (CHAT, "bfloat16", ["--dtype", "bfloat16"]),
    "quantization": (CHAT, "fp8", ["--quantization", "fp8"]),
    "vision": (CHAT, False, ["--no-vision"]),
    "arguments": (CHAT, ["--enforce-eager", "--seed=1"], ["--arg=--enforce-eager", "--arg=--seed=1"]),
    "command": (COMMAND, ["my-server", "two words", "{port}"], ["--command", "my-server 'two words' {port}"]),
    "family": ({**WAN, "rules": {"heads": 4}}, "wan-tiny-ti2v", ["--family", "wan-tiny-ti2v"]),
    "rules": (
        WAN,
        {"max_frames": 9, "default_frames": 5},
        ["--rules", '{"max_frames":9,"default_frames":5}'],
    ),
    "ulysses": (WAN, 2, ["--ulysses", "2"]),
    "cfg": (WAN, 2, ["--cfg", "2"]),
    "fsdp": (WAN, True, ["--fsdp"]),
    "device": (WAN, "cuda", ["--device", "cuda"]),
    "fp8": (WAN, True, ["--fp8"]),
    "fp8_attention": (WAN, True, ["--fp8-attention"]),
    "loras": (
        WAN,
        {"fast": {"weights": "/l", "steps": 4}},
        ["--loras", '{"fast":{"weights":"/l","steps":4}}'],
    ),
    "usual_loras": ({**WAN, "loras": {"a": "/l"}}, ["a:0.5"], ["--usual-lora", "a:0.5"]),
    "loras_apart": (WAN, True, ["--loras-apart"]),
    "video_engine": (WAN, "my.module:Engine", ["--video-engine", "my.module:Engine"]),
    "runner": (WAN, "external", ["--runner", "external"]),
    "version_of": (CHAT, "base", ["--version-of", "base"]),
    "share": ({**CHAT, "version_of": "base"}, 0.25, ["--share", "0.25"]),
}


def by_file(directory: Path, name: str, declared: dict[str, Any]) -> Model:
    file = directory / "declared.yaml"
    file.write_text(yaml.safe_dump({"models": {name: declared, "base": CHAT}}))
    return load({}, {}, file).config.models[0]


def by_command_line(monkeypatch: pytest.MonkeyPatch, *args: str) -> dict[str, Any]:
    """What the command sends."""
    sent: list[dict[str, Any]] = []

    def register(client: ApiClient, *path: str, body: dict[str, Any], params: None) -> dict[str, Any]:
        sent.append({name: value for name, value in body.items() if value is not None})
        return {}

    monkeypatch.setattr(ApiClient, "call", register)
    done = CliRunner().invoke(app, ["models", "register", *args, "--url", "http://nowhere", "--key", "k"])
    assert done.exit_code == 0, done.output
    return json.loads(json.dumps(sent[0]))


async def by_http(gateway: Gateway, body: dict[str, Any]) -> Model:
    gateway.http.headers.update(bearer(await gateway.key(role=Role.ADMIN)))
    for said in ({**CHAT, "alias": "base"}, body):
        answer = await gateway.http.post("/v1/models/register", json=said)
    assert answer.status_code == 200, answer.text
    return await gateway.inside.stores.fleet.models.get(body["alias"])


def test_every_field_has_a_sample_here() -> None:
    assert SAMPLES.keys() | {"alias"} == DECLARED.keys()


@pytest.fixture
async def open_gateway(gateway: Gateway) -> Gateway:
    object.__setattr__(gateway.inside.workers, "allow_registered_commands", True)
    return gateway


@pytest.mark.parametrize("field", SAMPLES)
async def test_a_field_means_the_same_by_file_by_http_and_by_command_line(
    open_gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    around, value, words = SAMPLES[field]
    declared = {**around, field: value}
    model = by_file(tmp_path, "a", declared)
    assert model != by_file(tmp_path, "a", {**CHAT, **around}), "the sample changes the model"
    body = {"alias": "a", **declared}
    assert await by_http(open_gateway, body) == model
    rest = [word for name, said in around.items() if name != field for word in _words(name, said)]
    assert by_command_line(monkeypatch, "a", *rest, *words) == body


def _words(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, value if isinstance(value, str) else json.dumps(value)]


@pytest.mark.parametrize(
    ("declared", "needs"),
    [
        ({**CHAT, "tensor_parallel_size": 2}, Needs(gpus=2)),
        ({**CHAT, "tensor_parallel_size": 2, "gpus": 4}, Needs(gpus=4)),
        ({**CHAT, "gpus": 0}, Needs(gpus=0)),
        ({**CHAT, "engine": "llamacpp"}, Needs(gpus=0)),
        ({**WAN, "device": "cuda", "ulysses": 2, "cfg": 2}, Needs(gpus=4, memory_bytes=4 * 2**30)),
    ],
)
async def test_gpus_that_are_not_said_follow_from_how_a_replica_is_split(
    gateway: Gateway, tmp_path: Path, declared: dict[str, Any], needs: Needs
) -> None:
    assert by_file(tmp_path, "a", declared).needs == needs
    assert (await by_http(gateway, {"alias": "a", **declared})).needs == needs


def test_a_file_may_group_what_a_replica_needs_and_call_the_model_its_weights(tmp_path: Path) -> None:
    grouped = {"engine": "vllm", "weights": "acme/small", "needs": {"gpus": 2, "memory_bytes": 5}}
    flat = {**CHAT, "gpus": 2, "memory_bytes": 5}
    assert by_file(tmp_path, "a", grouped) == by_file(tmp_path, "a", flat)


@pytest.mark.parametrize("field", SAMPLES)
def test_a_configuration_that_was_written_out_reads_the_same(tmp_path: Path, field: str) -> None:
    around, value, _ = SAMPLES[field]
    file = tmp_path / "first.yaml"
    file.write_text(yaml.safe_dump({"models": {"a": {**around, field: value}, "base": CHAT}}))
    config = load({}, {}, file).config
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(dump(config)))
    assert load({}, {}, again).config == config


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({**CHAT, "colour": "red"}, "models.a: Unknown parameter: colour. Known: alias, "),
        ({**CHAT, "needs": {"tpus": 1}}, r"models.a: Unknown parameter: needs\.tpus"),
        ({**CHAT, "needs": 3}, "models.a: needs must be an object"),
        ({**CHAT, "gpus": 1, "needs": {"gpus": 2}}, "models.a: gpus is given twice"),
        ({**CHAT, "weights": "other"}, "models.a: weights is given twice"),
        ({**CHAT, "concurrency": 0}, "models.a: concurrency must be at least 1"),
        ({"engine": "vllm"}, "models.a: weights is required"),
        ({**CHAT, "engine": "rocket"}, "models.a: engine must be"),
        (
            {"engine": "llamacpp", "weights": "builtin:smolm2"},
            "models.a: there is no builtin model 'smolm2'; known: smollm2",
        ),
        (
            {"weights": "builtin:wan-tiny", "family": "wan-tiny-t2v"},
            "models.a: there is no builtin model 'wan-tiny'; known: wan-tiny-t2v, ",
        ),
        *(
            ({**CHAT, name: SAMPLES[name][1]}, f"models.a: {name} is for video models")
            for name in sorted(VIDEO_FIELDS)
        ),
    ],
)
def test_a_file_says_which_field_is_wrong(tmp_path: Path, declared: dict[str, Any], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        by_file(tmp_path, "a", declared)


def test_the_engines_know_the_builtin_models_that_may_be_declared() -> None:
    assert set(BUILTIN_MODELS[EngineKind.VIDEO]) == builtin._KINDS.keys()
    assert {BUILTIN + name for name in BUILTIN_MODELS[EngineKind.LLAMACPP]} == llamacpp._BUILTIN.keys()


def test_a_file_whose_model_names_no_engine_declares_a_video_model(tmp_path: Path) -> None:
    model = by_file(tmp_path, "a", {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"})
    assert model.video is not None
