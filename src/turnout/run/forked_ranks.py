"""Starts a gang's ranks as forks of one process that has imported the engine."""

import os
import pickle
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from turnout.engines.video_engines import engine_path
from turnout.gang.rank_place import Pod, RankDuties, rank_place_from
from turnout.processes.fork_server import ForkServer, heartbeat_pipe
from turnout.processes.process import Process
from turnout.run.config import Config
from turnout.telemetry.log import get_log

_HEAVY = ["turnout.run.run_rank"]  # and the module of the model's engine
_AFRESH = "import sys; from turnout.run.forked_ranks import run_afresh; run_afresh(int(sys.argv[1]))"
# Lets libraries ask whether there is a GPU without starting CUDA, which would spoil it for every fork.
_QUIET_CUDA = "PYTORCH_NVML_BASED_CUDA_CHECK"


class ForkedRanks:
    """The ranks of one pod, or of a whole gang on one machine. `logs` None: they print where we do."""

    def __init__(self, config: Config, duties: RankDuties, pod: Pod, logs: Path | None) -> None:
        os.environ[_QUIET_CUDA] = "1"  # the fork server inherits it
        engine = engine_path(config.model(duties.model).gang.video_engine).partition(":")[0]
        self._fork_server = ForkServer([*_HEAVY, engine], logs)
        self._config = config
        self._duties = duties
        self._pod = pod

    async def start(self, number: int, rendezvous: str) -> tuple[Process, int]:
        ours, theirs = heartbeat_pipe()
        meeting = rendezvous if self._pod.meeting is None else None
        with ours, theirs:
            process = await self._fork_server.start(
                f"{self._duties.gang}.{number}",
                _be_rank,
                (self._config, self._duties, meeting, theirs),
                self._pod.variables(number),
            )
            os.set_blocking(ours.fileno(), False)
            return process, os.dup(ours.fileno())


def _be_rank(config: Config, duties: RankDuties, rendezvous: str | None, heartbeat: Connection) -> None:
    """The whole life of a forked rank."""
    rank = RankLaunch(config, duties, rendezvous, heartbeat.fileno())
    if config.model(duties.model).gang.device == "cuda" and _cuda_is_spoilt():
        _start_afresh(rank)
    rank.run()


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """What a rank is told when it starts."""

    config: Config
    duties: RankDuties
    rendezvous: str | None
    heartbeat_fd: int

    def run(self, note: str = "rank started") -> NoReturn:
        from turnout.run.run_rank import run_rank
        from turnout.telemetry.log import drain_log, start_logging

        place = rank_place_from(os.environ, self.rendezvous)
        if self.rendezvous is not None:
            tempfile.tempdir = os.path.dirname(
                self.rendezvous
            )  # what a killed rank leaves goes with its gang's folder
        start_logging(
            self.config.telemetry.log_level,
            role="rank",
            gang=self.duties.gang,
            rank=place.rank,
            model=self.duties.model,
        )
        try:
            get_log().debug(note)
            code = run_rank(self.config, self.duties, place, self.heartbeat_fd)
        finally:
            drain_log()
        leave_now(code)


def leave_now(code: int) -> NoReturn:
    """Skips the interpreter's shutdown: there gloo's threads sometimes abort the process when a peer has exited first, and
    whoever started it would count a finished rank as failed. A model that is still being loaded is not waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _cuda_is_spoilt() -> bool:
    """Whether an import in the fork server has asked CUDA something: no fork of that process can use CUDA then."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda._is_in_bad_fork())


def _start_afresh(rank: RankLaunch) -> NoReturn:
    """The same process with a new program, which imports everything itself: seconds later, but CUDA works."""
    os.set_inheritable(rank.heartbeat_fd, True)
    # In memory, not in the arguments: the configuration has secrets.
    held = os.memfd_create("rank", flags=0)
    with open(held, "wb", closefd=False) as file:
        pickle.dump(rank, file)
    os.lseek(held, 0, os.SEEK_SET)
    os.execv(sys.executable, [sys.executable, "-c", _AFRESH, str(held)])


def run_afresh(held: int) -> None:
    """What the new program runs; `held` is the descriptor of what it needs to know."""
    with open(held, "rb") as file:
        rank: RankLaunch = pickle.load(file)  # written by this very process
    os.set_inheritable(rank.heartbeat_fd, False)
    rank.run("rank started afresh: an import in the fork server had touched CUDA")
