"""The one writer of the fleet: hears what happened, lets `core` decide, publishes what follows from it.

Any number may run; the one that holds the right works. It keeps nothing that is not in Redis, so the next one
goes on where it stopped; times are by this process's clock and are moved to the next one's when that takes over.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from turnout.errors import Unavailable
from turnout.fleet.change_rules import (
    GatewayDemand,
    demand_event,
    model_events,
    publication,
    with_elsewhere,
    worker_events,
)
from turnout.fleet.core_rules import step
from turnout.fleet.events_and_commands import (
    Blame,
    Close,
    Command,
    Event,
    ForgetReplica,
    GiveUp,
    Reopen,
    SetWant,
    StartReplica,
    TakeUp,
    Tick,
)
from turnout.fleet.figure_rules import count_decisions, count_gpu_time, count_replicas
from turnout.fleet.fleet_rules import Fleet, ModelHistory, Rules, rebased
from turnout.fleet.fleet_store import ManagerState
from turnout.fleet.gang_reports import GangReports
from turnout.fleet.model_rules import EngineKind, Model, Runner
from turnout.fleet.model_store import ModelStore
from turnout.fleet.publication import FleetChanges, Publication, SavedFleet
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import AdminWish, Demand
from turnout.fleet.route_table import DemandReports
from turnout.fleet.status_rules import ModelStatus
from turnout.fleet.view_rules import orders_of, statuses_elsewhere
from turnout.fleet.worker_rules import Worker
from turnout.fleet.worker_store import WorkerStore
from turnout.store.mutex import Mutex
from turnout.tasks.backlog import Backlog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log
from turnout.tenants.gpu_account_rules import GpuAccounts
from turnout.tenants.usage_rules import day_of

log = get_log()

MUTEX = "fleet"
_MUTEX_S = 6.0
_TICK_S = 0.25
_RETRY_S = 0.5
_LOOK_S = 2.0  # how often all is read again, whatever was announced
_HISTORY_S = 1.0


@dataclass(slots=True)
class _LoopState:
    """What the loop knows between two cycles. `inherited` is what an earlier manager left, until everything was published
    anew; `asked` has each gateway's last report and its number; `elsewhere` are the models whose gangs no worker runs, and
    `elsewhere_told` those of them that gateways know of. `wall_s` is the wall clock's lead on ours when this one took over."""

    fleet: Fleet
    cursor: str
    inherited: SavedFleet | None
    wall_s: float
    gpu_accounts: GpuAccounts = field(default_factory=GpuAccounts)
    asked: dict[str, tuple[int, GatewayDemand]] = field(default_factory=dict[str, tuple[int, GatewayDemand]])
    wishes: list[AdminWish] = field(default_factory=list[AdminWish])
    elsewhere: dict[str, Model] = field(default_factory=dict[str, Model])
    elsewhere_told: dict[str, Model] = field(default_factory=dict[str, Model])
    elsewhere_statuses: dict[str, ModelStatus] = field(default_factory=dict[str, ModelStatus])
    looked_at: float = float("-inf")
    history_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class FleetManager:
    """`backlog` tells how many video tasks wait; `id` must be new for each process: replicas are named after it.
    `gangs_by` runs the gangs of models that do not say it; those that no worker runs are looked after by others;
    `gangs` and `queue` tell how their gangs are, and `reasons` why a model whose tasks wait has none. `wall_clock` says
    which day it is."""

    id: str
    manager_state: ManagerState
    models: ModelStore
    workers: WorkerStore
    demand: DemandReports
    backlog: Backlog
    mutex: Mutex
    gangs: GangReports
    queue: TaskQueue
    rules: Rules = field(default_factory=Rules)
    gangs_by: Runner = Runner.WORKER
    reasons: Callable[[], Mapping[str, str]] = dict
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time

    async def run(self) -> None:
        state: _LoopState | None = None
        ids: Iterator[ReplicaId] = (ReplicaId(f"{self.id}-{n}") for n in itertools.count(1))
        while True:
            try:
                if await self.mutex.hold(MUTEX, self.id, _MUTEX_S):
                    state = await self._cycle(state or await self._take_over(), ids)
                    continue
                state = None
            except Unavailable as err:
                # What was read or written last is not known: begin again from what is stored.
                log.warning("fleet not managed, trying again", error=str(err))
                state = None
            await asyncio.sleep(_RETRY_S)

    async def leave(self) -> None:
        """Lets another one take over at once; call it when `run` has ended."""
        try:
            await self.mutex.drop(MUTEX, self.id)
        except Unavailable as err:
            log.warning("fleet manager's lock not released, it will expire", error=str(err))

    async def _take_over(self) -> _LoopState:
        """The fleet as the last manager left it; every worker counts as heard just now."""
        now = self.clock()
        cursor = (await self.manager_state.wait_changes("", 0)).cursor
        saved, (models, _) = await self.manager_state.saved(), await self._models()
        enrolments = await self.workers.enrolments()
        heartbeats = await self.workers.heartbeats(list(enrolments))
        history = saved.history or ModelHistory(now)
        replicas = {  # one object for one model: comparing whole models for each replica would cost most of a step
            i: replace(r, spec=models[r.model]) if models.get(r.model) == r.spec else r
            for i, r in saved.replicas.items()
        }
        left = Fleet(
            models,
            replicas=replicas,
            pace=history.pace,
            failures=history.failures,
            given_up=history.given_up,
            wake_s=history.wake_s,
            rules=self.rules,
        )
        workers = {
            w: Worker(
                w,
                heartbeat.machine,
                enrolments[w].url,
                now,
                name=enrolments[w].name,
                version=saved.versions.get(w, heartbeat.seen + 1),
            )
            for w, heartbeat in heartbeats.items()
        }
        fleet = replace(rebased(left, now - history.at), workers=workers, at=now)
        log.info(
            "manager took over the fleet", manager=self.id, workers=len(workers), replicas=len(fleet.replicas)
        )
        state = _LoopState(fleet, cursor, saved, self.wall_clock() - now)
        orders = orders_of(fleet, saved.gpu_reports)
        state.gpu_accounts.take_over(saved.gpu_reports, orders, now + state.wall_s)
        return state

    async def _cycle(self, state: _LoopState, ids: Iterator[ReplicaId]) -> _LoopState | None:
        """One look, one decision, one publication; None when the right was lost."""
        events = await self._look(state, await self.manager_state.wait_changes(state.cursor, _TICK_S))
        now, before = self.clock(), state.fleet
        state.fleet, commands = step(before, events, now, ids)
        with_history = now - state.history_at >= _HISTORY_S
        update = publication(before, state.fleet, state.inherited, with_history=with_history)
        if update is not None:
            update = replace(
                update,
                replica_counts=count_replicas(state.fleet) if with_history else None,
                decision_counts=count_decisions(before, state.fleet, commands),
            )
        update = with_elsewhere(update, state.elsewhere_told, state.elsewhere, state.elsewhere_statuses)
        booking = state.gpu_accounts.due(day_of(self.wall_clock())) if with_history else None
        if booking is not None:
            update = update or Publication()
            counts = {**update.decision_counts, **count_gpu_time(booking.by_model)}
            update = replace(update, gpu_time=booking, decision_counts=counts)
        if update is not None and not await self.manager_state.publish(MUTEX, self.id, update):
            log.warning("another manager took over the fleet", manager=self.id)
            return None
        for worker, sheet in update.orders.items() if update is not None else ():
            state.gpu_accounts.order(worker, sheet.orders if sheet else (), now + state.wall_s)
        state.inherited = None
        state.elsewhere_told = state.elsewhere
        state.history_at = now if with_history else state.history_at
        for command in commands:
            _log_command(command)
        # In a large fleet something happens all the time: rest as long as it took, so that changes come in batches.
        await asyncio.sleep(min(_TICK_S, self.clock() - now))
        return state

    async def _look(self, state: _LoopState, changes: FleetChanges) -> list[Event]:
        """What happened, as events."""
        now, fleet = self.clock(), state.fleet
        state.cursor = changes.cursor
        # The stream may have been trimmed, and what lapses is not announced: look at all of it now and then.
        everything = now - state.looked_at >= _LOOK_S
        events: list[Event] = []
        if everything or changes.models:
            models, state.elsewhere = await self._models()
            events += model_events(fleet, models)
        if everything or changes.workers:
            enrolments = await self.workers.enrolments(None if everything else changes.workers)
            heartbeats = await self.workers.heartbeats(list(enrolments))
            asked = fleet.workers.keys() if everything else changes.workers
            state.gpu_accounts.hear(heartbeats, now + state.wall_s)
            if everything:
                state.gpu_accounts.forget_all_but(enrolments)
            events += worker_events(fleet, asked, enrolments, heartbeats)
        if everything or changes.gateways:
            state.asked = {
                gateway: known
                if (known := state.asked.get(gateway)) and known[0] == n
                else (n, (now, reports))
                for gateway, (n, reports) in (await self.demand.all()).items()
            }
            state.wishes = await self.demand.wishes()
        if everything:
            state.looked_at = now
            told = (await self.gangs.all()).values() if state.elsewhere else ()
            state.elsewhere_statuses = statuses_elsewhere(
                state.elsewhere.values(), self.gangs_by, told, self.reasons()
            )
            held: dict[GangId, int] = {}
            for model in {gang.model for gang in told}:
                held |= await self.queue.holdings(model)
            state.gpu_accounts.see_gangs(told, state.elsewhere, held)
        queues = await self._queues(fleet, now)
        asked = (one for _, one in state.asked.values())
        return [*events, demand_event(fleet, asked, queues, state.wishes, now), Tick()]

    async def _models(self) -> tuple[dict[str, Model], dict[str, Model]]:
        """Ours, and those whose gangs no worker runs."""
        models = await self.models.all()
        elsewhere = {
            name: model
            for name, model in models.items()
            if model.video is not None and model.video.run_by(self.gangs_by) is not Runner.WORKER
        }
        return {name: model for name, model in models.items() if name not in elsewhere}, elsewhere

    async def _queues(self, fleet: Fleet, now: float) -> dict[str, Demand]:
        """Video tasks wait in queues of their own, not at gateways."""
        demand: dict[str, Demand] = {}
        for model in fleet.models.values():
            if model.engine is EngineKind.VIDEO:
                figures = await self.backlog.figures(model.name)
                if figures.length:
                    waiting = max(0, figures.length - figures.running)
                    demand[model.name] = Demand(waiting, figures.running, now)
        return demand


def _log_command(command: Command) -> None:
    """One line for each decision."""
    facts = {f.name: getattr(command, f.name) for f in fields(command) if f.name != "needs"}
    level = log.warning if isinstance(command, Blame | GiveUp | ForgetReplica) else log.info
    level(_LOG_MESSAGES[type(command)], **facts)


_LOG_MESSAGES: dict[type, str] = {
    StartReplica: "replica placed",
    SetWant: "replica ordered",
    Close: "replica closed",
    Reopen: "replica opened again",
    ForgetReplica: "replica forgotten",
    Blame: "model failed",
    GiveUp: "model given up",
    TakeUp: "model taken up again",
}
