"""Runs one rank of a gang. Apart from the other roles, because only ranks need the engine's libraries."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from turnout.background import BackgroundLoops
from turnout.engines.base import EngineSetup, Parallel, VideoEngine
from turnout.engines.video_engines import OURS, find_engine
from turnout.engines.wan.builtin import find_weights
from turnout.errors import Misconfigured, Unauthorized, Unavailable
from turnout.fleet.gang_rules import RankReport
from turnout.fleet.model_rules import Model
from turnout.gang.attempt import AttemptContext
from turnout.gang.cadence_rules import Cadence
from turnout.gang.exit_codes import ExitCode
from turnout.gang.gang_api import GangApi
from turnout.gang.group import Group, GroupTimeouts
from turnout.gang.heartbeat import RankHeartbeat
from turnout.gang.leader import Leader
from turnout.gang.own_gpu import own_gpu_name
from turnout.gang.rank_commands import RankCommander, obey
from turnout.gang.rank_place import RankDuties, RankPlace
from turnout.processes.process_name import name_process
from turnout.run.config import Config
from turnout.run.gang_service import open_api
from turnout.run.signals import on_stop
from turnout.tasks.gang_messages import GangTold
from turnout.tasks.task_rules import GangId, LoadedBytes
from turnout.telemetry.log import get_log, name_gang

_TELL_PERCENT = 5
_TELL_EVERY_S = 2.0
_HEED_EVERY_S = 0.5


def run_rank(config: Config, duties: RankDuties, place: RankPlace, heartbeat_fd: int | None) -> ExitCode:
    """One rank of a gang as a process of its own, until it is drained (SIGTERM): rank 0 leads, the others obey."""
    name_process(f"turnout-rank-{place.rank}")
    if place.rank:
        return serve_rank(config, duties, place, heartbeat_fd, on_drain=_on_term)
    return serve_rank(config, duties, place, heartbeat_fd, on_drain=on_stop)


def _ignore(number: int, frame: object) -> None:
    """There must be a handler for the signal to be noted."""


def _on_term(leave: Callable[[], None]) -> None:
    """For a rank whose main thread waits in collectives, where Python runs no signal handler: the signal is noted in a pipe,
    and another thread reads that."""
    noted, note = os.pipe()
    os.set_blocking(note, False)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _ignore)
    signal.siginterrupt(signal.SIGTERM, False)

    def wait() -> None:
        while signal.SIGTERM not in os.read(noted, 64):
            pass
        leave()

    threading.Thread(target=wait, name="sigterm", daemon=True).start()


def serve_rank(
    config: Config,
    duties: RankDuties,
    place: RankPlace,
    heartbeat_fd: int | None,
    *,
    on_drain: Callable[[Callable[[], None]], None],
) -> ExitCode:
    """The same wherever it runs: `on_drain` is given what is to be called when this rank should leave. Rank 0 takes the
    others along; the others ask it to."""
    model = config.model(duties.model)
    video = model.gang
    if place.ranks != video.ranks:
        raise Misconfigured(
            f"{model.name} is configured for {video.ranks} ranks, but WORLD_SIZE is {place.ranks}"
        )
    heartbeat = RankHeartbeat(heartbeat_fd)
    meter = _LoadMeter(heartbeat, says=place.rank == 0)
    formed = _Formed(duties.gang, own_gpu_name(place.local_rank) if video.device == "cuda" else "")
    load = _loader(config, model, place, meter, formed)
    if place.rank:
        on_drain(formed.ask_to_leave)
        ranks = load()
        heartbeat.ready()
        obey(*ranks, heartbeat)
        return ExitCode.COMPLETED

    def load_ranks() -> RankCommander:
        ranks = RankCommander(*load(), heartbeat)
        heartbeat.ready()
        meter.done = True
        return ranks

    return asyncio.run(_lead(config, duties, load_ranks, meter, formed, on_drain))


class _Formed:
    """The group, once all ranks have met, and what they told each other then."""

    def __init__(self, gang: GangId, gpu: str) -> None:
        self.gang = gang
        self._gpu = gpu
        self._host = socket.gethostname()
        self.ranks = (RankReport(0, self._host, self._host),)
        self._group: Group | None = None
        self._met = threading.Event()

    def meet(self, group: Group) -> None:
        place = group.place
        own = RankReport(place.rank, self._host, self._host, os.getpid(), self._gpu)
        told = group.introduce((self.gang, own))
        self.gang = told[0][0]  # rank 0 made the name
        self.ranks = tuple(rank for _, rank in told)
        self._group = group
        self._met.set()

    @property
    def met(self) -> bool:
        return self._met.is_set()

    def ask_to_leave(self) -> None:
        """Waits until the ranks have met: rank 0 cannot be told before."""
        self._met.wait()
        if self._group is not None:
            self._group.ask_to_leave()

    def asked_to_leave(self) -> bool:
        return self._group is not None and self._group.asked_to_leave()


class _LoadMeter:
    """How much of the weights this rank has read. Reading is a sign of life: a slow disk is no stalled rank."""

    def __init__(self, heartbeat: RankHeartbeat, *, says: bool) -> None:
        self._heartbeat = heartbeat
        self._says = says
        self._told = 0
        self.loaded: LoadedBytes | None = None
        self.done = False

    def __call__(self, read_bytes: int, of_bytes: int) -> None:
        self.loaded = LoadedBytes(read_bytes, of_bytes)
        self._heartbeat.moved()
        percent = 100 * read_bytes // max(1, of_bytes)
        if self._says and percent >= self._told + _TELL_PERCENT:
            self._told = percent
            get_log().info(
                f"loading {percent} %"
            )  # the worker looks for it in the log, as in those of engines


async def _lead(
    config: Config,
    duties: RankDuties,
    load: Callable[[], RankCommander],
    meter: _LoadMeter,
    formed: _Formed,
    on_drain: Callable[[Callable[[], None]], None],
) -> ExitCode:
    if duties.service is None:
        raise Misconfigured("the rank that leads must know its service")
    async with open_api(duties.service) as api:
        context = AttemptContext(
            api,
            Cadence(config.gangs.checkpoint_steps, config.gangs.checkpoint_s, config.gangs.preview_steps),
            config.gangs.step_timeout_s,
            ThreadPoolExecutor(1, thread_name_prefix="engine"),
            lambda: meter.loaded,
        )
        leader = Leader(context, duties, load, lambda: formed.met)
        on_drain(leader.drain)
        if not duties.tells:
            return await leader.run()
        report = partial(_report, time.time(), meter, formed)
        async with BackgroundLoops(
            {
                "gang report": partial(_tell, api, report),
                "leaving": partial(_heed, formed, leader.drain),
            }
        ).running():
            return await leader.run()


async def _tell(api: GangApi, report: Callable[[], GangTold]) -> None:
    """Nobody else knows of a gang that others started."""
    while True:
        with contextlib.suppress(Unavailable, Unauthorized):
            await api.tell(report())
        await asyncio.sleep(_TELL_EVERY_S)


def _report(since: float, meter: _LoadMeter, formed: _Formed) -> GangTold:
    return GangTold(since=since, formation=1, ranks=formed.ranks, ready_at=since if meter.done else None)


async def _heed(formed: _Formed, drain: Callable[[], None]) -> None:
    """Another pod's ranks are told to end: all must leave."""
    while not await asyncio.to_thread(formed.asked_to_leave):
        await asyncio.sleep(_HEED_EVERY_S)
    drain()
    await asyncio.Event().wait()


def _loader(
    config: Config, model: Model, place: RankPlace, meter: _LoadMeter, formed: _Formed
) -> Callable[[], tuple[Group, VideoEngine]]:
    video = model.gang

    def load() -> tuple[Group, VideoEngine]:
        make = find_engine(video.video_engine)
        # Before the group is formed: inside one, transformers lets only rank 0 save files.
        weights = find_weights(model.weights, config.state_dir / "models", video.video_engine in OURS)
        timeouts = GroupTimeouts(config.gangs.meeting_timeout_s, config.gangs.collective_timeout_s)
        group = Group.form(place, video.device, timeouts)
        formed.meet(group)
        name_gang(formed.gang)
        device = f"cuda:{place.local_rank}" if video.device == "cuda" else video.device
        parallel = Parallel(video.ulysses, video.cfg, video.fsdp)
        setup = EngineSetup(
            *(weights, parallel, device, model.gang_dtype, video.fp8, meter, video.loras, video.loras_apart),
            fp8_attention=video.fp8_attention,
        )
        return group, make(setup)

    return load
