"""Starts a gang's ranks as forks of one process that has imported the engine."""

import os
from multiprocessing.connection import Connection

from turnout.adapters.fork_server import ForkServer, heartbeat_pipe
from turnout.config import Config
from turnout.domain.tasks import GangId
from turnout.domain.video_model import Model
from turnout.ports.processes import Process

_HEAVY = ["turnout.wiring.run_rank", "turnout.engines.wan.load", "turnout.engines.wan.builtin"]


class ForkedRanks:
    def __init__(self, config: Config, model: Model, gang: GangId, *, once: bool) -> None:
        self._fork_server = ForkServer(_HEAVY, config.state_dir / "logs")
        self._config = config
        self._model = model
        self._gang = gang
        self._once = once

    async def start(self, number: int, rendezvous: str) -> tuple[Process, int]:
        ours, theirs = heartbeat_pipe()
        place = {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(self._model.ranks),
            # One machine: no need to guess which interface reaches the peers.
            "GLOO_SOCKET_IFNAME": "lo",
        }
        with ours, theirs:
            process = await self._fork_server.start(
                f"{self._gang}.{number}",
                _be_rank,
                (self._config, self._model.name, self._gang, rendezvous, theirs, self._once),
                place,
            )
            os.set_blocking(ours.fileno(), False)
            return process, os.dup(ours.fileno())


def _be_rank(
    config: Config, model: str, gang: GangId, rendezvous: str, heartbeat: Connection, once: bool
) -> None:
    """The whole life of a forked rank."""
    from turnout.gang.group import rank_place_from
    from turnout.observe import drain_log, start_logging
    from turnout.wiring.run_rank import run_rank

    place = rank_place_from(os.environ, rendezvous)
    start_logging(config.log_level, role="rank", gang=gang, rank=place.rank)
    try:
        run_rank(config, model, gang, place, heartbeat.fileno(), once=once)
    finally:
        drain_log()
