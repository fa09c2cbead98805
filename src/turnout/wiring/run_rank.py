"""Runs one rank of a gang. Apart from the other roles, because only ranks need the engine's libraries."""

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from turnout.config import Config
from turnout.domain.errors import Misconfigured
from turnout.domain.tasks import GangId, LoadedBytes
from turnout.domain.video_model import Model
from turnout.engines.base import EngineSetup, Parallel, VideoEngine
from turnout.engines.video_engines import OURS, find_engine
from turnout.engines.wan.builtin import find_weights
from turnout.gang.attempt import AttemptContext
from turnout.gang.cadence import Cadence
from turnout.gang.group import Group, RankPlace
from turnout.gang.heartbeat import RankHeartbeat
from turnout.gang.leader import Leader, LeaderTerms
from turnout.gang.rank_commands import RankCommander, obey
from turnout.observe import get_log
from turnout.wiring.signals import on_stop
from turnout.wiring.stores import open_stores

_TELL_PERCENT = 5


def run_rank(
    config: Config, model_name: str, gang: GangId, place: RankPlace, heartbeat_fd: int | None, *, once: bool
) -> None:
    """One rank of a gang as a process of its own, until it is drained (SIGTERM): rank 0 leads, the others obey."""
    if place.rank:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rank 0 decides when all leave
    serve_rank(config, model_name, gang, place, heartbeat_fd, once=once, on_drain=on_stop)


def serve_rank(
    config: Config,
    model_name: str,
    gang: GangId,
    place: RankPlace,
    heartbeat_fd: int | None,
    *,
    once: bool,
    on_drain: Callable[[Callable[[], None]], None],
) -> None:
    """The same wherever it runs: `on_drain` is given what rank 0 wants called when it should leave."""
    model = config.model(model_name)
    if place.ranks != model.ranks:
        raise Misconfigured(
            f"{model.name} is configured for {model.ranks} ranks, but WORLD_SIZE is {place.ranks}"
        )
    heartbeat = RankHeartbeat(heartbeat_fd)
    meter = _LoadMeter(heartbeat, says=place.rank == 0)
    load = _loader(config, model, place, meter)
    if place.rank:
        obey(*load(), heartbeat)
        return

    def load_ranks() -> RankCommander:
        ranks = RankCommander(*load(), heartbeat)
        heartbeat.ready()
        return ranks

    terms = LeaderTerms(model.name, gang, config.limits, once)
    asyncio.run(_lead(config, terms, load_ranks, lambda: meter.loaded, on_drain))


class _LoadMeter:
    """How much of the weights this rank has read. Reading is a sign of life: a slow disk is no stalled rank."""

    def __init__(self, heartbeat: RankHeartbeat, *, says: bool) -> None:
        self._heartbeat = heartbeat
        self._says = says
        self._told = 0
        self.loaded: LoadedBytes | None = None

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
    terms: LeaderTerms,
    load: Callable[[], RankCommander],
    loaded: Callable[[], LoadedBytes | None],
    on_drain: Callable[[Callable[[], None]], None],
) -> None:
    async with open_stores(config) as stores:
        context = AttemptContext(
            stores.tasks,
            stores.queue,
            stores.blobs,
            Cadence(config.checkpoint_steps, config.checkpoint_s, config.preview_steps),
            config.lease_s,
            config.step_timeout_s,
            ThreadPoolExecutor(1, thread_name_prefix="engine"),
            loaded,
        )
        leader = Leader(context, terms, load)
        on_drain(leader.drain)
        await leader.run()


def _loader(
    config: Config, model: Model, place: RankPlace, meter: _LoadMeter
) -> Callable[[], tuple[Group, VideoEngine]]:
    def load() -> tuple[Group, VideoEngine]:
        make = find_engine(model.video_engine)
        # Before the group is formed: inside one, transformers lets only rank 0 save files.
        weights = find_weights(model.weights, config.state_dir / "models", model.video_engine in OURS)
        group = Group.form(place, model.device)
        device = f"cuda:{place.local_rank}" if model.device == "cuda" else model.device
        parallel = Parallel(model.ulysses, model.cfg, model.fsdp)
        return group, make(EngineSetup(weights, parallel, device, model.dtype, model.fp8, meter))

    return load
