"""How this machine runs vLLM: as a program, or as forks of a fork server that this worker keeps."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from turnout.engines.servers import vllm
from turnout.engines.servers.engine_servers import Program
from turnout.errors import Misconfigured
from turnout.processes.process import Commands
from turnout.telemetry.log import get_log
from turnout.worker import engine_fork_server
from turnout.worker.worker_settings import WorkerSettings

_PAUSE_S = 5.0

log = get_log()


def vllm_program(settings: WorkerSettings, traces_endpoint: str | None, kept_at: Path, gpus: bool) -> Program:
    offline = {} if settings.worker_downloads else {"HF_HUB_OFFLINE": "1"}
    if settings.vllm_fork_server:
        program = forked_program(kept_at, gpus)
    else:
        program = Program((settings.vllm, "serve"), guarded(os.environ))
    program = replace(program, environ={**program.environ, **offline})
    return traced(program, traces_endpoint, os.environ) if traces_endpoint else program


def traced(program: Program, endpoint: str, environ: Mapping[str, str]) -> Program:
    """Lets vLLM tell of the requests that we trace, below our spans; by itself it would tell of all."""
    told = {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "OTEL_SERVICE_NAME": f"{environ.get('OTEL_SERVICE_NAME', 'turnout')}-engine",
    }
    return replace(
        program,
        environ={**program.environ, **told},
        arguments=(*program.arguments, f"--otlp-traces-endpoint={endpoint}"),
    )


def guarded(environ: Mapping[str, str]) -> dict[str, str]:
    """Lets vLLM's Python find our guard."""
    inherited = environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{vllm.GUARD_FOLDER}{os.pathsep + inherited if inherited else ''}"}


def forked_program(kept_at: Path, gpus: bool) -> Program:
    """vLLM as a fork of the fork server that listens at this path."""
    environ = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"} | (
        {} if gpus else {engine_fork_server.ALWAYS_FORK: "1"}
    )
    ask = (
        sys.executable,
        "-m",
        "turnout.worker.engine_fork_server",
        "ask",
        str(kept_at),
        f"{vllm.MODULE}:main",
        "serve",
    )
    return Program(ask, environ)


def python_of(program: str) -> str:
    """The interpreter of the environment that a program was installed in."""
    found = shutil.which(program)
    python = Path(found).with_name("python") if found else None
    if python is None or not python.exists():
        raise Misconfigured(
            f"vllm_fork_server: there is no {program}, or no python beside it; set vllm to its path"
        )
    return str(python)


async def keep_fork_server(python: str, commands: Commands, kept_at: Path) -> None:
    """Has it from the start on, so that the first request finds it ready; starts it again when it ends."""
    while True:
        argv = [python, engine_fork_server.__file__, "keep", str(kept_at), *vllm.IMPORTS]
        process = await commands.start("fork-server", argv, guarded(os.environ))
        try:
            await process.wait()
        finally:
            process.kill()
        log.warning("vllm fork server ended, starting another", said=process.last_words())
        await asyncio.sleep(_PAUSE_S)
