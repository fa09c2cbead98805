"""How long a vLLM server takes to answer: started as a program, and as a fork of a fork server.

Needs an environment with vLLM, on a CPU or a GPU: `TURNOUT_VLLM_PYTHON=/path/to/python ./dev bench fork_server`.
"""

import asyncio
import os
import random
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil
from tests.engine_servers.tiny_llama import make_tiny_llama

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from turnout.engines.servers import vllm
from turnout.engines.servers.launch_plan import Program
from turnout.worker import engine_fork_server
from turnout.worker.engine_ports import EnginePorts
from turnout.worker.vllm_programs import forked_program

ROUNDS = 2
_ON_CPU = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


async def measure() -> Table:
    """Start of a vLLM server as a program and as a fork of a fork server."""
    table = Table(
        "fork_server: seconds until vLLM's /health answers",
        ("start", "n", "best", "worst", "of the program's"),
    )
    python = os.environ.get("TURNOUT_VLLM_PYTHON")
    if not python:
        table.notes = ["Left out: TURNOUT_VLLM_PYTHON names no Python with vLLM."]
        return table
    pressure = Pressure()
    gpus = Path("/dev/nvidia0").exists()
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", **({} if gpus else _ON_CPU)}
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as directory:
        weights = make_tiny_llama(Path(directory) / "tiny")
        kept_at = Path(directory) / "forks"
        program = Program((python, "-m", vllm.MODULE, "serve"))
        started = [await _until_healthy(program, weights, environ) for _ in range(ROUNDS)]
        keeper = await asyncio.create_subprocess_exec(
            python, engine_fork_server.__file__, "keep", str(kept_at), *vllm.IMPORTS, env=environ
        )
        try:
            forks = forked_program(kept_at, gpus)
            first = await _until_healthy(forks, weights, environ)
            forked = [await _until_healthy(forks, weights, environ) for _ in range(ROUNDS)]
            memory = psutil.Process(keeper.pid).memory_info().rss / 2**30
        finally:
            keeper.kill()
            await keeper.wait()
    table.rows = [
        ("as a program", ROUNDS, min(started), max(started), None),
        ("as a fork", ROUNDS, min(forked), max(forked), min(forked) / min(started)),
        ("as a fork, before the fork server was ready", 1, first, first, first / min(started)),
    ]
    table.notes = [f"The fork server holds {memory:.1f} GiB.", pressure.note()]
    return table


async def _until_healthy(program: Program, weights: Path, environ: Mapping[str, str]) -> float:
    port = EnginePorts(random.Random()).take()
    words = [str(weights), "--host=127.0.0.1", f"--port={port}", "--max-model-len=256", "--enforce-eager"]
    say(f"{' '.join(program.argv[:4])} …")
    began = time.monotonic()
    server = await asyncio.create_subprocess_exec(
        *program.argv, *words, env={**environ, **program.environ}, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            while server.returncode is None:
                try:
                    await client.get(f"http://127.0.0.1:{port}/health")
                    return time.monotonic() - began
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
        raise RuntimeError(f"it ended with code {server.returncode}")
    finally:
        server.terminate()
        await server.wait()
