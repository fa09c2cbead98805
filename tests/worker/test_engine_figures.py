"""What an engine tells of itself, asked by its owner: a real process that answers well, or anything."""

import pytest
from tests.conftest import wait_until
from tests.worker.conftest import Bench, wait_phase

from turnout.fleet.replica_rules import EngineFigures, Phase, Want
from turnout.worker.replica_owner import EngineDeadlines

OFTEN = EngineDeadlines(health_every_s=0.05)
ROGUES = [
    "endless",
    "silent",
    "",
    "<html>not found</html>",
    "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n",
    "vllm:num_requests_running -1\nvllm:kv_cache_usage_perc 17\n",
    "vllm:num_requests_running " + "9" * 5000 + "\n",
    "vllm:num_requests_running{" + "}" * 50_000 + "\n",
    "\udcff\udcfe llamacpp:requests_processing 1",
]


async def test_what_a_ready_engine_tells_goes_with_its_report_and_leaves_with_it(bench: Bench) -> None:
    text = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n"
    replica = bench.replica(f"--metrics={text}", deadlines=OFTEN)
    await wait_until(lambda: replica.report().figures is not None, "the engine to be asked")
    assert replica.report().figures == EngineFigures(running=2, waiting=3)
    replica.want(Want.GONE)
    assert replica.report().figures is None
    await wait_phase(replica, Phase.GONE)


@pytest.mark.parametrize("answer", ROGUES, ids=lambda answer: answer[:32])
async def test_an_engine_that_answers_anything_tells_nothing_and_goes_on(bench: Bench, answer: str) -> None:
    launch = bench.launch(f"--metrics={answer}")
    replica = bench.replica(launch=launch, deadlines=EngineDeadlines(health_every_s=0.05, answer_s=2.0))
    await wait_phase(replica, Phase.READY)
    assert await bench.engine.figures(launch, 2.0) is None
    assert (replica.phase, replica.report().figures) == (Phase.READY, None)


async def test_an_engine_without_metrics_tells_nothing(bench: Bench) -> None:
    launch = bench.launch()
    replica = bench.replica(launch=launch)
    await wait_phase(replica, Phase.READY)
    assert await bench.engine.figures(launch, 60.0) is None
