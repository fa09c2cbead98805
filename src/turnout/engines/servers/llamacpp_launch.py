"""How llama.cpp's server is started, and which arguments a user may give it. Pure."""

from turnout.engines.servers.launch_plan import (
    DIALECT,
    INTEGER,
    NUMBER,
    Flag,
    Launch,
    Program,
    choice,
)
from turnout.fleet.model_rules import Model

PATHS = DIALECT | {"/v1/responses", "/v1/messages", "/v1/rerank"}

POOLING = ("none", "mean", "cls", "last", "rank")

FLAGS = (
    Flag("--batch", INTEGER),
    Flag("--embedding"),
    Flag("--gpu-layers", INTEGER),
    Flag("--parallel", INTEGER),
    Flag("--pooling", choice(*POOLING)),
    Flag("--predict", INTEGER),
    Flag("--repeat-penalty", NUMBER),
    Flag("--temperature", NUMBER),
    Flag("--threads", INTEGER),
)

FIELDS = {"--weights": "weights", "--alias": "name", "--context": "max_model_len"}

KEY = "LLAMA_API_KEY"
DRAIN_S = 10.0
_MAX_SLOTS = 8  # more than this only makes each answer slower on the machines that llama.cpp is for


def plan(
    model: Model,
    gpu_count: int,
    cpus: int,
    port: int,
    program: Program,
    key: str | None = None,
) -> Launch:
    """Uses half of the processors: its threads wait for each other by spinning, and when one of them has to share its
    processor an answer takes a hundred times as long (measured: 0.3 s and 36 s)."""
    defaults = {
        "--parallel": max(1, min(_MAX_SLOTS, model.concurrency)),
        "--gpu-layers": -1 if gpu_count else 0,
        "--threads": max(1, cpus // 2),
    }
    argv = [
        *program.argv,
        f"--weights={model.weights}",
        f"--alias={model.name}",
        f"--port={port}",
        f"--drain={DRAIN_S}",
    ]
    for name, value in defaults.items():
        if not any(word.startswith(name) for word in model.server.arguments):
            argv.append(f"{name}={value}")
    if model.server.max_model_len is not None:
        argv.append(f"--context={model.server.max_model_len}")
    environ = {**program.environ}
    if key:
        environ[KEY] = key
    return Launch((*argv, *model.server.arguments), environ, port, grace_s=DRAIN_S + 5.0, key=key)
