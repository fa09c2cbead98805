"""A simulated world: machines, engines, requests and a clock of its own, around the decisions that run the service.

The manager's `core.step` decides about replicas; tasks and seats are given out by the rules of the queue and of the gateways
(`simulated_queues`). The world only lets time pass: an engine that was ordered loads, a request that was begun ends. The
manager is asked when something happened that may change a decision, or when `due` says so; in the service it looks four
times a second, and mostly finds nothing to do. Workers are heard when they have something new; a machine that dies is
noticed as late as in the service (`Rules.gone_s`).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from turnout.fleet.core_rules import absorb, step
from turnout.fleet.due_rules import next_due
from turnout.fleet.events_and_commands import (
    Close,
    Command,
    DemandSeen,
    Event,
    ForgetReplica,
    GiveUp,
    Reopen,
    SetWant,
    StartReplica,
    WorkerHeard,
    WorkerRemoved,
)
from turnout.fleet.fleet_rules import USED_GRAIN_S, Fleet, Rules
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId, Want
from turnout.fleet.scale_rules import scale
from turnout.fleet.view_rules import routes_of
from turnout.plan.cloud import Pool, machines_for
from turnout.plan.engine_faults import EngineFaults
from turnout.plan.scenario import DAY_S, PlannedModel, Scenario
from turnout.plan.simulated_engines import SimulatedEngines
from turnout.plan.simulated_machine import SimulatedMachine
from turnout.plan.simulated_queues import SimulatedSeats
from turnout.plan.simulated_requests import SimulatedRequests
from turnout.plan.traffic import PlannedRequest
from turnout.plan.world_state import WorldState

_DRAIN_S = 2 * DAY_S  # how long after the horizon the last requests may end


class World:
    """Runs once, with machines of the `pools`."""

    def __init__(
        self,
        scenario: Scenario,
        models: Iterable[PlannedModel],
        pools: Sequence[Pool],
        *,
        jobs: bool = False,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.state = state = WorldState(scenario, jobs=jobs)
        self._models = {model.name: model for model in models}
        self._requests = SimulatedRequests(state, self._models)
        self._faults = EngineFaults(state, self._requests)
        self._engines = SimulatedEngines(state, self._requests, self._faults, self._models)
        self._pools = {pool.name: pool for pool in pools}
        self._progress = progress
        self._clock = state.clock
        self._machines: dict[WorkerId, SimulatedMachine] = {}
        self._on = Counter[str]()
        self._ids: Iterator[ReplicaId] = (ReplicaId(f"r{n}") for n in itertools.count(1))
        self._names = itertools.count(1)
        self._sequence = itertools.count(1)
        # Workers are heard when they have news: silence means nothing here. Jobs keep what they have.
        rules = Rules(
            min_resident_s=inf if jobs else scenario.service.min_resident_s,
            suspect_s=inf,
            gone_s=inf,
            forget_s=inf,
        )
        self.fleet = Fleet(rules=rules)
        state.when_news(self._look)

    def run(self, requests: Iterator[PlannedRequest]) -> None:
        """Until the horizon, and until the last request has ended or nothing more can end."""
        state, clock, horizon_s = self.state, self._clock, self.state.scenario.horizon_s
        for pool in self._pools.values():
            for _ in range(pool.on):
                self._order_machine(pool, 0.0)
        if not state.jobs:
            for model in self._models.values():
                state.add_model(model, model.spec)
        for kill in state.scenario.faults.kills:
            clock.at(kill.at_s, self._faults.kill_one, self._engines.all.values(), kill.model)
        state.news()
        upcoming, shown = next(requests, None), 0.0
        while True:
            next_at = clock.next_at()
            if upcoming is not None and upcoming.at <= next_at:
                clock.now = upcoming.at
                self._requests.arrive(upcoming)
                upcoming = next(requests, None)
            elif next_at <= horizon_s or (next_at <= horizon_s + _DRAIN_S and self._unfinished):
                clock.run_next()
            elif upcoming is None:
                break
            state.measured.counts.events += 1
            if clock.now - shown > horizon_s / 200:
                shown = clock.now
                self._progress(min(1.0, shown / horizon_s))
        clock.now = max(clock.now, horizon_s)
        for machine in self._machines.values():
            machine.meter.end(clock.now)
        self._requests.count_unfinished()

    @property
    def _unfinished(self) -> bool:
        return any(own.running or own.queue.waiting for own in self.state.models.values())

    def _look(self, at: float) -> None:
        """The manager looks at what is new, and decides."""
        state, now = self.state, self._clock.now
        if at != state.look_at:
            return
        state.look_at = inf
        state.measured.counts.decisions += 1
        before = self.fleet
        self._tell_when_idle()
        events: list[Event] = [*state.events, *(self._heard(m) for m in state.dirty if m.up and not m.gone)]
        asked = {n: own.demand(now) for n in state.asked if (own := state.models.get(n)) is not None}
        state.events, state.dirty, state.asked = [], {}, {}
        self.fleet, commands = step(self.fleet, [*events, DemandSeen(asked)], now, self._ids)
        moved = self._carry_out(commands) | self._forget_left(before) | self._became_ready(before)
        self._route(moved)
        self._remember(moved | asked.keys())
        self._ask_for_machines()
        due = next_due(self.fleet, now)
        if due < inf:
            state.news(due)

    def _tell_when_idle(self) -> None:
        """Heartbeats say every two seconds who is busy. Here a replica that became idle since the last look is reported
        as of the time when it did, because its idle time begins then."""
        ends: dict[float, list[SimulatedMachine]] = {}
        for machine in self.state.dirty:
            since = [
                e.idle_since for e in machine.engines.values() if e.idle_since is not None and not e.requests
            ]
            if since and machine.up and not machine.gone:
                ends.setdefault(max(since) // USED_GRAIN_S, []).append(machine)
        for second in sorted(ends):
            at = min(self._clock.now, (second + 1) * USED_GRAIN_S)
            self.fleet = absorb(self.fleet, [self._heard(m, as_busy=True) for m in ends[second]], at)

    def _heard(self, machine: SimulatedMachine, *, as_busy: bool = False) -> WorkerHeard:
        known = self.fleet.workers.get(machine.id)
        heard = machine.heartbeat(next(self._sequence), known.version if known else 0, as_busy=as_busy)
        if not as_busy:
            machine.reported()
        return heard

    def _carry_out(self, commands: Iterable[Command]) -> set[str]:
        """Has the orders obeyed; the models whose routes may have changed."""
        engines, touched = self._engines, set[str]()
        for command in commands:
            match command:
                case StartReplica():
                    machine = self._machines.get(command.worker)
                    if machine is not None:  # one that has just died obeys no more
                        engines.start(command, machine)
                    continue
                case GiveUp(model, _, until):
                    touched.add(model)
                    own = self.state.models.get(model)
                    if own is not None and (until is None or not own.model.video):
                        self._requests.refuse_all(own)
                    continue
                case SetWant() | Close() | Reopen() | ForgetReplica():
                    engine = engines.all.get(command.replica)
                case _:
                    continue
            if engine is None:
                continue
            touched.add(engine.model)
            match command:
                case SetWant(want=Want.GONE):
                    engines.stop(engine)
                case SetWant(want=Want.ASLEEP):
                    engines.doze(engine)
                case SetWant(want=Want.READY):
                    engines.wake(engine)
                case Close(room_for=room_for):
                    self.state.measured.counts.evictions += room_for is not None
                    engines.close(engine)
                case Reopen():
                    engines.reopen(engine)
                case ForgetReplica():
                    engines.forget(engine)
                    self._emptied(engine.machine)
                case _:
                    pass
        return touched

    def _forget_left(self, before: Fleet) -> set[str]:
        left = before.replicas.keys() - self.fleet.replicas.keys()
        touched = set[str]()
        for replica in left:
            engine = self._engines.all.get(replica)
            if engine is not None:
                touched.add(engine.model)
                self._engines.forget(engine)
                self._emptied(engine.machine)
        return touched

    def _became_ready(self, before: Fleet) -> set[str]:
        return {
            replica.model
            for i, replica in self.fleet.replicas.items()
            if (old := before.replicas.get(i)) is not replica
            and (old is None or old.phase is not replica.phase)
        }

    def _route(self, models: set[str]) -> None:
        """Tells the gateways where requests for these models go now."""
        known = {name for name in models if name in self.state.models and name in self.fleet.models}
        routes = routes_of(self.fleet, known)
        for name in sorted(known):
            own = self.state.models[name]
            if isinstance(own.queue, SimulatedSeats):
                own.queue.route(routes[name], self._engines.all)
                self._requests.serve(own)

    def _remember(self, models: set[str]) -> None:
        """What the manager knows now of the models' load."""
        self.state.pressed = any(pace.pressed_since is not None for pace in self.fleet.pace.values())
        have = Counter(r.model for r in self.fleet.replicas.values() if r.model in models and r.open)
        for name in models:
            own = self.state.models.get(name)
            if own is not None:
                own.have = have[name]
                own.sign = own.signature()

    # Machines

    def _ask_for_machines(self) -> None:
        room_left = {name: pool.most - self._on[name] for name, pool in self._pools.items()}
        if not self.state.pressed or not any(room_left.values()):
            return
        being_made = {r.closing.room_for for r in self.fleet.replicas.values() if r.closing is not None}
        claims = scale(self.fleet, self._clock.now).claims
        replicas = [self.fleet.models[c.model] for c in claims if c.model not in being_made]
        coming = [self._pools[m.name] for m in self._machines.values() if not m.up]
        for pool in machines_for(replicas, self._pools.values(), room_left, coming):
            self._order_machine(pool, pool.kind.boot_s)

    def _order_machine(self, pool: Pool, boot_s: float) -> None:
        now, state = self._clock.now, self.state
        worker = WorkerId(f"{pool.name}-{next(self._names)}")
        machine = self._machines[worker] = SimulatedMachine(worker, pool.name, pool.kind, state.meter, now)
        self._on[pool.name] += 1
        state.machines_on.add("", 1, now)
        self._clock.at(now + boot_s, self._boot, machine)

    def _boot(self, machine: SimulatedMachine) -> None:
        machine.up = True
        machine.meter.booted(self._clock.now)
        self.state.hear(machine)
        self._emptied(machine)
        if machine.kind.deaths_a_day:
            lives_s = self.state.rng.expovariate(machine.kind.deaths_a_day / DAY_S)
            self._clock.at(self._clock.now + lives_s, self._die, machine)

    def _emptied(self, machine: SimulatedMachine) -> None:
        if not machine.engines and not machine.gone:
            machine.empty_since = self._clock.now
            self._clock.at(self._clock.now + machine.kind.release_s, self._release, machine)

    def _release(self, machine: SimulatedMachine) -> None:
        """Gives an empty machine back, unless it is always on."""
        empty_s = self._clock.now - machine.empty_since
        if machine.engines or machine.gone or empty_s < machine.kind.release_s - 1e-6:
            return
        if self._on[machine.name] > self._pools[machine.name].on:
            self._leave(machine)
            self.state.events.append(WorkerRemoved(machine.id))
            self.state.news()

    def _die(self, machine: SimulatedMachine) -> None:
        if machine.gone:
            return
        self._faults.lose(machine)
        self._leave(machine)
        self._clock.at(self._clock.now + Rules().gone_s, self._miss, machine)
        pool = self._pools[machine.name]
        if self._on[machine.name] < pool.on:
            self._order_machine(pool, pool.kind.boot_s)

    def _leave(self, machine: SimulatedMachine) -> None:
        machine.gone = True
        machine.meter.end(self._clock.now)
        del self._machines[machine.id]
        self._on[machine.name] -= 1
        self.state.machines_on.add("", -1, self._clock.now)

    def _miss(self, machine: SimulatedMachine) -> None:
        """The manager has not heard from it for too long."""
        self.state.events.append(WorkerRemoved(machine.id))
        self.state.news()
