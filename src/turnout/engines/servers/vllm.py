"""How vLLM's server is started for a model. Written against vLLM 0.32. Pure.

The allow list has what tunes a server. Left out on purpose: all that reads a file or a URL (`--chat-template`,
`--config`, `--ssl-*`, `--lora-modules`, `--tokenizer`, `--download-dir`, `--allowed-local-media-path`), all that
loads code (`--trust-remote-code`, `--middleware`, `--logits-processors`, `--tool-parser-plugin`, `--worker-cls`,
`--speculative-config`, `--compilation-config`, `--kv-transfer-config`, `--load-format pt`), and all that
changes who can reach the server (`--host`, `--uds`, `--api-key`).

It fetches nothing: pictures come with the request (`chat/request_body`). `--allowed-media-domains` (since vLLM 0.11) names a host
that cannot exist, because vLLM takes an empty list for "all", and redirects are off.

vLLM's own key protects only some paths: `/sleep`, `/metrics`, `/tokenize` and others stay open. So an engine with a
key runs our middleware in front of all paths (`guard/vllm_guard.py`, which is on its PYTHONPATH).
"""

import math
from collections.abc import Sequence
from pathlib import Path

from turnout.engines.servers.launch_plan import (
    DIALECT,
    INTEGER,
    LOOPBACK,
    NAME,
    NUMBER,
    Flag,
    Launch,
    Program,
    choice,
)
from turnout.fleet.machine_rules import Gpu
from turnout.fleet.model_rules import Model

PATHS = DIALECT | {
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/tokenize",
    "/detokenize",
}

FLAGS = (
    Flag("--async-scheduling"),
    Flag("--block-size", INTEGER),
    Flag("--convert", choice("auto", "none", "embed", "classify")),
    Flag("--cpu-offload-gb", NUMBER),
    Flag("--disable-custom-all-reduce"),
    Flag("--enable-auto-tool-choice"),
    Flag("--enable-chunked-prefill"),
    Flag("--enable-expert-parallel"),
    Flag("--enable-prefix-caching"),
    Flag("--enforce-eager"),
    Flag("--generation-config", choice("auto", "vllm")),
    Flag("--kv-cache-dtype", choice("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")),
    Flag("--kv-cache-memory-bytes", INTEGER),
    Flag("--load-format", choice("auto", "safetensors", "fastsafetensors", "dummy", "mistral")),
    Flag("--max-logprobs", INTEGER),
    Flag("--max-num-batched-tokens", INTEGER),
    Flag("--max-num-seqs", INTEGER),
    Flag("--no-async-scheduling"),
    Flag("--no-enable-chunked-prefill"),
    Flag("--no-enable-prefix-caching"),
    Flag("--reasoning-parser", NAME),
    Flag("--revision", NAME),
    Flag("--runner", choice("auto", "generate", "pooling", "draft")),
    Flag("--scheduling-policy", choice("fcfs", "priority")),
    Flag("--seed", INTEGER),
    Flag("--tokenizer-mode", choice("auto", "hf", "mistral")),
    Flag("--tool-call-parser", NAME),
)

FIELDS = {
    "--model": "weights",
    "--served-model-name": "name",
    "--max-model-len": "max_model_len",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--dtype": "dtype",
    "--quantization": "quantization",
    "-q": "quantization",
    "--enable-sleep-mode": "sleep",
}

# What the fork server imports before it forks engines; each fork runs MODULE's `main`.
MODULE = "vllm.entrypoints.cli.main"
IMPORTS = (
    MODULE,
    "vllm.entrypoints.cli.serve",
    "vllm.v1.engine.core",
    "vllm.v1.engine.async_llm",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.gpu_worker",
    "vllm.model_executor.models.registry",
    "vllm.model_executor.models.llama",
)

GUARD_FOLDER = Path(__file__).with_name("guard")

_NO_DOMAIN = "media.invalid"  # RFC 2606: no such name will ever be
_DRAIN_S = 20  # vLLM's own default is 0: it would abort requests in flight


def plan(model: Model, gpus: Sequence[Gpu], port: int, program: Program, key: str | None = None) -> Launch:
    """Values are joined to their flags by `=`, so that no value is ever read as a flag."""
    optional = {
        "--max-model-len": model.server.max_model_len,
        "--gpu-memory-utilization": gpu_share(model, gpus),
        "--dtype": model.dtype,
        "--quantization": model.server.quantization,
    }
    argv = [
        *program.argv,
        model.weights,
        f"--served-model-name={model.name}",
        f"--host={LOOPBACK}",
        f"--port={port}",
        "--enable-server-load-tracking",
        f"--allowed-media-domains={_NO_DOMAIN}",
        f"--shutdown-timeout={_DRAIN_S}",
        f"--tensor-parallel-size={model.server.tensor_parallel_size}",
        *(f"{name}={value}" for name, value in optional.items() if value is not None),
        *program.arguments,
    ]
    environ = {**program.environ, "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"}
    if key:
        argv.append("--middleware=vllm_guard.Guard")
        environ["VLLM_API_KEY"] = key
    if model.scaling.sleep:
        argv.append("--enable-sleep-mode")
        environ["VLLM_SERVER_DEV_MODE"] = "1"
    argv.extend(model.server.arguments)
    return Launch(tuple(argv), environ, port, sleeps=model.scaling.sleep, grace_s=_DRAIN_S + 10.0, key=key)


def gpu_share(model: Model, gpus: Sequence[Gpu]) -> float | None:
    """What `--gpu-memory-utilization` should be: as registered, or else the memory that the replica was promised.

    vLLM takes 0.9 of the whole GPU by default, which would leave nothing for the replica's neighbours there.
    """
    if model.server.gpu_memory_utilization is not None:
        return model.server.gpu_memory_utilization
    smallest = min((gpu.total_bytes for gpu in gpus), default=0)
    if not smallest or not model.needs.gpu_memory_bytes:
        return None
    return min(0.95, math.floor(1000 * model.needs.gpu_memory_bytes / smallest) / 1000)
