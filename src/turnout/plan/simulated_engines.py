"""Engines in a simulated world: they do what they are ordered to, and it takes time."""

from collections import Counter

from turnout.fleet.events_and_commands import StartReplica
from turnout.fleet.replica_rules import Phase, ReplicaId
from turnout.plan.engine_faults import EngineFaults
from turnout.plan.scenario import PlannedModel
from turnout.plan.simulated_machine import SimulatedEngine, SimulatedMachine, figures_name
from turnout.plan.simulated_queues import SimulatedTaskQueue
from turnout.plan.simulated_requests import SimulatedRequests
from turnout.plan.world_state import WorldState


class SimulatedEngines:
    """Carries out what the manager orders."""

    def __init__(
        self,
        state: WorldState,
        requests: SimulatedRequests,
        faults: EngineFaults,
        models: dict[str, PlannedModel],
    ) -> None:
        self._state = state
        self._clock = state.clock
        self._requests = requests
        self._faults = faults
        self._models = models
        self.all: dict[ReplicaId, SimulatedEngine] = {}
        self._starts = Counter[str]()

    def start(self, command: StartReplica, machine: SimulatedMachine) -> None:
        name = figures_name(command.model)
        timing = self._models[name].timing
        engine = SimulatedEngine(command, machine, timing)
        machine.engines[engine.id] = self.all[engine.id] = engine
        self._state.measured.counts.cold_starts += 1
        load_s = timing.loads[self._starts[name] % len(timing.loads)] if timing.loads else timing.load_s
        self._starts[name] += 1
        self._state.held.add(name, len(engine.devices), self._clock.now)
        self._load(engine, load_s + (timing.pod_s if self._state.jobs else 0.0))

    def stop(self, engine: SimulatedEngine) -> None:
        if engine.phase in (Phase.STOPPING, Phase.GONE):
            return
        failed = engine.phase is Phase.FAILED
        self._state.withdraw(engine)
        self._requests.interrupt(engine, counts=False)
        self._state.count_unready(engine)
        engine.phase = Phase.STOPPING
        engine.change += 1
        engine.set_loading(True, self._clock.now)
        stop_s = 0.0 if failed else engine.timing.stop_s
        self._clock.at(self._clock.now + stop_s, self._gone, engine, engine.change)

    def doze(self, engine: SimulatedEngine) -> None:
        """It is to fall asleep."""
        self._state.withdraw(engine)
        engine.change += 1
        self._clock.at(self._clock.now + engine.timing.to_wake_s, self._asleep, engine, engine.change)

    def wake(self, engine: SimulatedEngine) -> None:
        if engine.phase is Phase.SLEEPING:
            self._state.measured.counts.wakes += 1
            self._load(engine, engine.timing.to_wake_s)
        else:
            engine.change += 1  # it was told to fall asleep, and has not begun
        self.reopen(engine)

    def close(self, engine: SimulatedEngine) -> None:
        engine.closing = True
        self._state.count_unready(engine)
        self._state.withdraw(engine)
        self._report_closing(engine, engine.change)

    def _report_closing(self, engine: SimulatedEngine, change: int) -> None:
        """Its worker reports at every heartbeat whether it has requests left."""
        if engine.closing and engine.change == change and not engine.machine.gone:
            self._state.hear(engine.machine)
            self._clock.at(
                self._clock.now + self._state.settings.heartbeat_s, self._report_closing, engine, change
            )

    def reopen(self, engine: SimulatedEngine) -> None:
        engine.closing = False
        self._state.withdraw(engine)
        self._state.count_ready(engine)
        self._ask(engine)

    def forget(self, engine: SimulatedEngine) -> None:
        """It has left, or is given up."""
        self.all.pop(engine.id, None)
        if engine.machine.engines.pop(engine.id, None) is not None:
            self._state.held.add(engine.stats, -len(engine.devices), self._clock.now)

    def _ask(self, engine: SimulatedEngine) -> None:
        """A gang that has no task asks for one. (One that loads takes a task as well, if no other gang is at work: that
        changes nothing for who waits.)"""
        own = self._state.models.get(engine.model)
        if (
            own is not None
            and isinstance(own.queue, SimulatedTaskQueue)
            and engine.serves
            and not engine.requests
        ):
            own.queue.ask(engine)
            self._requests.serve(own)

    def _load(self, engine: SimulatedEngine, seconds: float) -> None:
        faults = self._state.scenario.faults
        if faults.slow_loads and self._state.rng.random() < faults.slow_loads:
            seconds *= faults.slow_factor
        engine.phase = Phase.STARTING
        engine.change += 1
        engine.machine.changed = True
        engine.set_loading(True, self._clock.now)
        self._clock.at(self._clock.now + seconds, self._loaded, engine, engine.change)
        self._state.dirty[engine.machine] = None

    def _loaded(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change != change:
            return
        engine.phase = Phase.READY
        engine.set_loading(False, self._clock.now)
        self._state.count_ready(engine)
        self._ask(engine)
        self._faults.may_crash(engine)
        self._state.hear(engine.machine)

    def _gone(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change == change:
            engine.phase = Phase.GONE
            engine.machine.changed = True
            engine.set_loading(False, self._clock.now)
            self._state.hear(engine.machine)

    def _asleep(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change == change:
            self._state.count_unready(engine)
            engine.phase = Phase.SLEEPING
            engine.machine.changed = True
            self._state.hear(engine.machine)
