"""How engines are started, and what a user may not smuggle into it."""

from dataclasses import replace

import pytest

from turnout.engines.servers.engine_servers import (
    Program,
    Programs,
    check_arguments,
    check_served,
    plan_launch,
    relay_paths,
)
from turnout.engines.servers.llamacpp import builtin_weights, find_weights
from turnout.errors import InvalidRequest
from turnout.fleet.machine_rules import Gpu
from turnout.fleet.model_rules import EngineKind, Model, Needs, ServerPart
from turnout.worker.vllm_programs import traced

GIB = 2**30
VLLM = Model("chat", EngineKind.VLLM, "acme/small")
GPUS = (Gpu(2, 80 * GIB, 80 * GIB), Gpu(5, 80 * GIB, 80 * GIB))

ALLOWED = [
    (EngineKind.VLLM, ("--enforce-eager",)),
    (EngineKind.VLLM, ("--max-num-seqs", "64", "--seed=7")),
    (EngineKind.VLLM, ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")),
    (EngineKind.VLLM, ("--kv-cache-memory-bytes=1000000000", "--kv-cache-dtype=fp8")),
    (EngineKind.LLAMACPP, ("--threads", "2", "--embedding")),
    (EngineKind.VLLM, ()),
]

REFUSED = [
    ("--trust-remote-code",),
    ("--trust-remote",),  # engines take abbreviations
    ("--chat-template", "/etc/passwd"),
    ("--chat-template=/etc/passwd",),
    ("--config", "/tmp/x.yaml"),
    ("--middleware", "os.system"),
    ("--logits-processors", "evil:Processor"),
    ("--tool-parser-plugin", "/tmp/x.py"),
    ("--tool-call-parser", "/tmp/x.py"),
    ("--tool-call-parser=../../x",),
    ("--load-format", "pt"),
    ("--generation-config", "/etc"),
    ("--allowed-local-media-path", "/"),
    ("--allowed-media-domains", "example.com"),
    ("--lora-modules", "a=/x"),
    ("--ssl-keyfile", "/x"),
    ("--download-dir", "/x"),
    ("--worker-cls", "x.Y"),
    ("--compilation-config", "{}"),
    ("--kv-transfer-config", "{}"),
    ("--speculative-config", "{}"),
    ("--host", "0.0.0.0"),
    ("--host=0.0.0.0",),
    ("--port", "1"),
    ("--uds", "/tmp/s"),
    ("--api-key", "x"),
    ("--root-path", "/x"),
    ("--seed", "--trust-remote-code"),
    ("--seed",),
    ("--seed", "1\n--trust-remote-code"),
    ("--seed=1 --trust-remote-code",),
    ("--enforce-eager=1",),
    ("--enforce-eager", "yes"),
    ("--hf-overrides.architectures", "x"),
    ("acme/other",),
    ("-O3",),
    ("--",),
    ("",),
    ("--max-model-len", "5"),  # a field of the model
]


@pytest.mark.parametrize(("engine", "arguments"), ALLOWED)
def test_arguments_that_tune_a_server_pass(engine: EngineKind, arguments: tuple[str, ...]) -> None:
    check_arguments(engine, arguments)


@pytest.mark.parametrize("engine", [EngineKind.VLLM, EngineKind.LLAMACPP, EngineKind.COMMAND])
@pytest.mark.parametrize("arguments", REFUSED)
def test_arguments_that_read_files_run_code_or_open_doors_are_refused(
    engine: EngineKind, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_arguments(engine, arguments)
    assert refused.value.param == "arguments"


@pytest.mark.parametrize(
    "model",
    [
        replace(VLLM, weights="--trust-remote-code"),
        replace(VLLM, weights=""),
        replace(VLLM, weights="a\nb"),
        replace(VLLM, dtype="--trust-remote-code"),
        replace(VLLM, server=replace(VLLM.server, quantization="")),
        replace(VLLM, name="-x"),
        replace(VLLM, server=replace(VLLM.server, command=("sh", "{port}"))),
        Model("own", EngineKind.COMMAND, ""),
        Model("own", EngineKind.COMMAND, "", server=ServerPart(command=("serve", "--port", "80"))),
        Model("own", EngineKind.COMMAND, "-x", server=ServerPart(command=("serve", "{port}", "{weights}"))),
        Model("film", EngineKind.VIDEO, "builtin:wan"),
    ],
)
def test_a_model_that_cannot_be_started_safely_is_not_planned(model: Model) -> None:
    with pytest.raises(InvalidRequest):
        plan_launch(model, (), 20_000, Programs())


def test_vllm_is_started_as_registered() -> None:
    model = replace(
        VLLM,
        dtype="bfloat16",
        scaling=replace(VLLM.scaling, sleep=True),
        server=replace(
            VLLM.server,
            max_model_len=4096,
            gpu_memory_utilization=0.5,
            tensor_parallel_size=2,
            quantization="fp8",
            arguments=("--enforce-eager",),
        ),
    )
    launch = plan_launch(model, GPUS, 20_001, Programs())
    assert launch.argv[:3] == ("vllm", "serve", "acme/small")
    assert set(launch.argv[3:]) == {
        "--served-model-name=chat",
        "--host=127.0.0.1",
        "--port=20001",
        "--enable-server-load-tracking",
        "--allowed-media-domains=media.invalid",
        "--shutdown-timeout=20",
        "--tensor-parallel-size=2",
        "--max-model-len=4096",
        "--gpu-memory-utilization=0.5",
        "--dtype=bfloat16",
        "--quantization=fp8",
        "--enable-sleep-mode",
        "--enforce-eager",
    }
    assert launch.environ == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "2,5",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        "VLLM_SERVER_DEV_MODE": "1",
    }
    assert launch.sleeps
    assert launch.grace_s > 20, "it is not killed while it drains"


def test_vllm_without_sleep_has_no_development_paths() -> None:
    launch = plan_launch(VLLM, GPUS, 20_001, Programs())
    assert not launch.sleeps
    assert "VLLM_SERVER_DEV_MODE" not in launch.environ


def test_vllm_is_told_where_traces_go() -> None:
    program = traced(
        Program(("vllm", "serve")), "http://127.0.0.1:4318/v1/traces", {"OTEL_SERVICE_NAME": "film"}
    )
    launch = plan_launch(VLLM, (), 20_001, Programs(vllm=program))
    assert "--otlp-traces-endpoint=http://127.0.0.1:4318/v1/traces" in launch.argv
    assert launch.environ["OTEL_TRACES_SAMPLER"] == "parentbased_always_off"
    assert launch.environ["OTEL_SERVICE_NAME"] == "film-engine"


def test_vllm_takes_no_more_of_a_gpu_than_was_promised() -> None:
    model = replace(VLLM, needs=Needs(gpus=2, gpu_memory_bytes=20 * GIB))
    assert "--gpu-memory-utilization=0.25" in plan_launch(model, GPUS, 1, Programs()).argv


def test_an_engine_sees_only_its_own_gpus() -> None:
    model = Model("s", EngineKind.LLAMACPP, "builtin:smollm2")
    cpu, gpu = plan_launch(model, (), 1, Programs()), plan_launch(model, GPUS[:1], 1, Programs())
    assert (cpu.environ["CUDA_VISIBLE_DEVICES"], gpu.environ["CUDA_VISIBLE_DEVICES"]) == ("", "2")
    assert "--gpu-layers=0" in cpu.argv
    assert "--gpu-layers=-1" in gpu.argv


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 1), (64, 32)])
def test_llamacpp_leaves_processors_to_others(cpus: int, threads: int) -> None:
    model = Model("s", EngineKind.LLAMACPP, "builtin:smollm2")
    assert f"--threads={threads}" in plan_launch(model, (), 1, Programs(cpus=cpus)).argv
    own = plan_launch(
        replace(model, server=replace(model.server, arguments=("--threads", "3"))), (), 1, Programs(cpus=cpus)
    )
    assert [word for word in own.argv if word.startswith("--threads=")] == []


def test_a_command_is_filled_in_word_by_word() -> None:
    model = Model(
        "own",
        EngineKind.COMMAND,
        "a b; {port}",
        server=ServerPart(command=("serve", "--at={host}:{port}", "{weights}", "{x}", "{{")),
    )
    assert plan_launch(model, (), 7, Programs()).argv == (
        "serve",
        "--at=127.0.0.1:7",
        "a b; {port}",
        "{x}",
        "{{",
    )


def test_builtin_weights_are_found_without_their_package_s_code() -> None:
    assert builtin_weights() == ["builtin:smollm2"]
    assert find_weights("builtin:smollm2").stat().st_size > 50_000_000


@pytest.mark.parametrize("engine", [EngineKind.VLLM, EngineKind.LLAMACPP, EngineKind.COMMAND])
def test_control_paths_are_never_relayed(engine: EngineKind) -> None:
    paths = relay_paths(engine)
    assert "/v1/chat/completions" in paths
    control = {
        "/sleep",
        "/wake_up",
        "/is_sleeping",
        "/metrics",
        "/collective_rpc",
        "/slots",
        "/props",
        "/load",
        "/health",
    }
    assert not paths & control


def test_served_models_are_checked_as_a_whole() -> None:
    check_served(VLLM)
    check_served(Model("own", EngineKind.COMMAND, "", server=ServerPart(command=("serve", "{port}"))))
