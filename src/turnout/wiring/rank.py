"""Wires one rank of a gang. Apart from the other roles, because only ranks need the engine's libraries."""

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from turnout.config import Config
from turnout.domain.errors import Misconfigured
from turnout.domain.models import Model
from turnout.domain.tasks import GangId
from turnout.engines.base import Parallel, VideoEngine
from turnout.gang.attempt import Bench
from turnout.gang.crew import Crew, obey
from turnout.gang.group import Group, Seat
from turnout.gang.leader import Leader, Orders
from turnout.gang.pace import Cadence
from turnout.gang.pulse import Pulse
from turnout.wiring import on_stop, open_wires


def run_rank(
    config: Config, model_name: str, gang: GangId, seat: Seat, pulse_fd: int | None, *, once: bool
) -> None:
    """One rank of a gang as a process of its own, until it is drained (SIGTERM): rank 0 leads, the others obey."""
    if seat.rank:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rank 0 decides when all leave
    serve_rank(config, model_name, gang, seat, pulse_fd, once=once, on_drain=on_stop)


def serve_rank(
    config: Config,
    model_name: str,
    gang: GangId,
    seat: Seat,
    pulse_fd: int | None,
    *,
    once: bool,
    on_drain: Callable[[Callable[[], None]], None],
) -> None:
    """The same wherever it runs: `on_drain` is given what rank 0 wants called when it should leave."""
    model = config.model(model_name)
    if seat.ranks != model.ranks:
        raise Misconfigured(
            f"{model.name} is configured for {model.ranks} ranks, but WORLD_SIZE is {seat.ranks}"
        )
    pulse = Pulse(pulse_fd)
    load = _loader(config, model, seat)
    if seat.rank:
        obey(*load(), pulse)
        return

    def load_crew() -> Crew:
        crew = Crew(*load(), pulse)
        pulse.ready()
        return crew

    asyncio.run(_lead(config, Orders(model.name, gang, config.limits, once), load_crew, on_drain))


async def _lead(
    config: Config,
    orders: Orders,
    load: Callable[[], Crew],
    on_drain: Callable[[Callable[[], None]], None],
) -> None:
    async with open_wires(config) as wires:
        bench = Bench(
            wires.tasks,
            wires.queue,
            wires.blobs,
            Cadence(config.checkpoint_steps, config.checkpoint_s, config.preview_steps),
            config.lease_s,
            config.step_timeout_s,
            ThreadPoolExecutor(1, thread_name_prefix="engine"),
        )
        leader = Leader(bench, orders, load)
        on_drain(leader.drain)
        await leader.run()


def _loader(config: Config, model: Model, seat: Seat) -> Callable[[], tuple[Group, VideoEngine]]:
    def load() -> tuple[Group, VideoEngine]:
        from turnout.engines.wan.builtin import find_weights
        from turnout.engines.wan.load import load as load_wan

        # Before the group is formed: inside one, transformers lets only rank 0 save files.
        weights = find_weights(model.weights, config.state_dir / "models")
        group = Group.form(seat, model.device)
        device = f"cuda:{seat.local_rank}" if model.device == "cuda" else model.device
        parallel = Parallel(model.ulysses, model.cfg, model.fsdp)
        return group, load_wan(weights, parallel, device, model.dtype)

    return load
