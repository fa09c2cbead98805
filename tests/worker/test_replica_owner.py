"""One engine and its owner, on real processes."""

import asyncio
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.engine_servers.engines import marked
from tests.pace import patient
from tests.worker.conftest import MODEL, Bench, wait_phase

from turnout.errors import Unavailable
from turnout.fleet.replica_rules import Phase, Want
from turnout.worker.replica_owner import EngineDeadlines

# A process of its own alone: what a shell starts at every turn is there and gone while a test looks.
LIVES = """
import pathlib, sys, time
ready, alive = map(pathlib.Path, sys.argv[1:])
ready.touch()
while True:
    alive.touch()
    time.sleep(0.05)
"""


async def test_stop_waits_for_a_request_under_way_and_refuses_others(bench: Bench) -> None:
    replica = bench.replica()
    await wait_phase(replica, Phase.READY)
    in_flight = replica.admit()
    replica.want(Want.GONE)
    assert replica.phase is Phase.STOPPING
    with pytest.raises(Unavailable):
        replica.admit()
    assert marked(replica.id), "the engine goes on until the request has ended"
    assert replica.report().busy == 1
    in_flight.end()
    in_flight.end()
    await wait_phase(replica, Phase.GONE)
    await bench.lives[0]
    assert marked(replica.id) == []
    assert replica.report().busy == 0


async def test_a_request_that_never_ends_delays_a_stop_for_a_bounded_time(bench: Bench) -> None:
    replica = bench.replica(deadlines=EngineDeadlines(drain_s=0.1))
    await wait_phase(replica, Phase.READY)
    in_flight = replica.admit()
    replica.want(Want.GONE)
    await wait_phase(replica, Phase.GONE)
    in_flight.end()
    assert replica.report().busy == 0


async def test_an_engine_that_ignores_sigterm_is_killed_with_all_it_started(bench: Bench) -> None:
    launch = bench.launch("--ignore-term", "--with-core", grace_s=0.3)
    replica = bench.replica(launch=launch)
    await wait_phase(replica, Phase.READY)
    replica.want(Want.GONE)
    await wait_phase(replica, Phase.GONE)
    await bench.lives[0]
    assert marked(replica.id) == []


async def test_a_killed_engine_takes_its_core_along_and_is_told_as_failed(bench: Bench) -> None:
    replica = bench.replica("--with-core")
    await wait_phase(replica, Phase.READY)
    assert len(marked(replica.id)) == 4  # the subreaper, the server, two that would outlive it
    [server] = [p for p in marked(replica.id) if "fake_engine.py" in " ".join(p.cmdline()[:2])]
    server.send_signal(signal.SIGKILL)
    await wait_phase(replica, Phase.FAILED)
    assert "signal 9" in replica.report().detail
    assert marked(replica.id) == []


async def test_an_engine_that_leaves_in_peace_leaves_no_process_of_another_session(bench: Bench) -> None:
    replica = bench.replica("--with-core")
    await wait_phase(replica, Phase.READY)
    replica.want(Want.GONE)
    await wait_phase(replica, Phase.GONE)
    assert marked(replica.id) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--say=torch.OutOfMemoryError: CUDA out of memory.", "--exit=1"), "out of GPU memory"),
        (("--exit=-9",), "ran out of memory"),
        (("--say=serve: error: unrecognized arguments: --nonsense", "--exit=2"), "--nonsense"),
        (("--exit=3", "--say=what a day"), "exit code 3: what a day"),
    ],
)
async def test_a_failed_start_is_told_in_words(bench: Bench, options: tuple[str, ...], words: str) -> None:
    replica = bench.replica(*options)
    await wait_phase(replica, Phase.FAILED)
    assert words in replica.report().detail


async def test_a_program_that_is_not_there_is_told(bench: Bench) -> None:
    replica = bench.replica(launch=replace(bench.launch(), argv=("/no/such/engine",)))
    await wait_phase(replica, Phase.FAILED)
    assert "/no/such/engine is not installed" in replica.report().detail


async def test_an_engine_that_never_answers_fails_at_its_deadline(bench: Bench) -> None:
    replica = bench.replica(
        "--hang-loading",
        "--say=loading shard 1",
        model=replace(MODEL, scaling=replace(MODEL.scaling, load_timeout_s=3.0)),
    )
    await wait_phase(replica, Phase.FAILED)
    assert "load_timeout_s" in replica.report().detail
    assert "loading shard 1" in replica.report().detail
    assert marked(replica.id) == []


async def test_stopped_while_loading_it_is_gone_at_once(bench: Bench) -> None:
    replica = bench.replica("--hang-loading")
    await wait_until(lambda: len(marked(replica.id)) >= 2, "the engine to load")
    replica.want(Want.GONE)
    await wait_phase(replica, Phase.GONE)
    assert replica.report().detail == ""


async def test_called_off_before_it_began_nothing_is_left(bench: Bench) -> None:
    replica = bench.replica()
    replica.want(Want.GONE)
    await asyncio.wait_for(bench.lives[0], patient(20))
    assert replica.phase is Phase.GONE
    assert marked(replica.id) == []


async def test_an_engine_that_hangs_while_ready_is_noticed(bench: Bench) -> None:
    replica = bench.replica(deadlines=EngineDeadlines(answer_s=1.0, health_every_s=0.05, max_missed=2))
    await wait_phase(replica, Phase.READY)
    [server] = [p for p in marked(replica.id) if "fake_engine.py" in " ".join(p.cmdline()[:2])]
    server.suspend()
    await wait_phase(replica, Phase.FAILED)
    assert "no longer answers" in replica.report().detail
    assert marked(replica.id) == []


async def test_a_gang_whose_supervisor_hangs_is_noticed(bench: Bench, tmp_path: Path) -> None:
    ready, alive, access = tmp_path / "ready", tmp_path / "alive", tmp_path / "access"
    access.touch()
    launch = replace(
        bench.launch(),
        argv=(sys.executable, "-c", LIVES, str(ready), str(alive)),
        port=0,
        ready_file=ready,
        alive_file=alive,
        access_file=access,
    )
    replica = bench.replica(launch=launch, deadlines=EngineDeadlines(health_every_s=1.0, max_missed=2))
    await wait_phase(replica, Phase.READY)
    [gang] = [p for p in marked(replica.id) if "turnout.worker.subreaper" not in p.cmdline()]
    gang.suspend()
    await wait_phase(replica, Phase.FAILED)
    assert "no longer answers" in replica.report().detail
    assert marked(replica.id) == []
    assert not any(file.exists() for file in (ready, alive, access)), "a gang's token goes with it"


async def test_sleep_and_wake_and_a_stop_while_asleep(bench: Bench) -> None:
    replica = bench.replica(launch=bench.launch(sleeps=True))
    await wait_phase(replica, Phase.READY)
    replica.want(Want.ASLEEP)
    await wait_phase(replica, Phase.SLEEPING)
    with pytest.raises(Unavailable):
        replica.admit()
    replica.want(Want.READY)
    assert replica.phase is Phase.STARTING
    await wait_phase(replica, Phase.READY)
    replica.admit().end()
    replica.want(Want.ASLEEP)
    await wait_phase(replica, Phase.SLEEPING)
    replica.want(Want.GONE)
    await wait_phase(replica, Phase.GONE)


async def test_an_engine_that_does_not_fall_asleep_has_failed(bench: Bench) -> None:
    replica = bench.replica(launch=bench.launch("--refuse-sleep", sleeps=True))
    await wait_phase(replica, Phase.READY)
    replica.want(Want.ASLEEP)
    await wait_phase(replica, Phase.FAILED)
    assert "sleep mode is off" in replica.report().detail


async def test_a_server_without_a_health_path_is_asked_for_its_models(bench: Bench) -> None:
    await wait_phase(bench.replica("--no-health"), Phase.READY)


async def test_a_cancelled_owner_leaves_nothing(bench: Bench) -> None:
    replica = bench.replica("--with-core")
    await wait_phase(replica, Phase.READY)
    bench.lives[0].cancel()
    await asyncio.gather(bench.lives[0], return_exceptions=True)
    assert marked(replica.id) == []


async def test_a_replica_tells_how_far_it_has_loaded_where_its_engine_says_so(bench: Bench) -> None:
    said = "Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:01<00:02]"
    replica = bench.replica("--hang-loading", "--say", said)
    await wait_until(lambda: replica.report().detail == "loading 40 %", "the progress to be told")
    assert replica.report().phase is Phase.STARTING
