"""Engines in a simulated world: they do what they are ordered to, and it takes time. Machines die, and engines crash."""

from collections import Counter

from turnout.fleet.events_and_commands import StartReplica
from turnout.fleet.replica_rules import Phase, ReplicaId
from turnout.plan.request_desk import RequestDesk
from turnout.plan.request_lines import TaskLine
from turnout.plan.scenario import DAY_S, PlannedModel, Timing
from turnout.plan.simulated_machine import SimulatedEngine, SimulatedMachine
from turnout.plan.world_state import ModelLine, WorldState

_WAKE_SHARE = 0.1  # of the load time, when nobody says how long it takes to wake


class EngineRoom:
    def __init__(self, state: WorldState, desk: RequestDesk, models: dict[str, PlannedModel]) -> None:
        self._state = state
        self._clock = state.clock
        self._desk = desk
        self._models = models
        self.engines: dict[ReplicaId, SimulatedEngine] = {}
        self._starts = Counter[str]()

    def start(self, command: StartReplica, machine: SimulatedMachine) -> None:
        engine = SimulatedEngine(command.replica, command.model, machine, command.gpus, command.needs)
        machine.engines[engine.id] = self.engines[engine.id] = engine
        self._state.tally.counts["starts"] += 1
        timing, name = self._timing(engine), self._stats(engine)
        load_s = timing.loads[self._starts[name] % len(timing.loads)] if timing.loads else timing.load_s
        self._starts[name] += 1
        self._state.held.add(self._stats(engine), len(engine.devices), self._clock.now)
        self._load(engine, load_s + (timing.pod_s if self._state.jobs else 0.0))

    def kill_one(self, model: str) -> None:
        """One of the model's replicas is killed, a busy one if there is one."""
        alive = [e for e in self.engines.values() if e.model == model and e.phase is Phase.READY]
        if alive:
            self._fail(min(alive, key=lambda e: (not e.requests, e.id)))

    def lose(self, machine: SimulatedMachine) -> None:
        """Its machine has died; what it had under way is missed only when leases run out."""
        for engine in tuple(machine.engines.values()):
            self._leave_line(engine)
            engine.change += 1
            self._unready(engine)
            own = self._line(engine)
            if own is not None and own.model.video:
                self._clock.at(self._clock.now + self._state.settings.lease_s, self._miss, engine)
            else:
                self._miss(engine)

    def _miss(self, engine: SimulatedEngine) -> None:
        self._desk.interrupt(engine, counts=True)
        engine.phase = Phase.FAILED

    def stop(self, engine: SimulatedEngine) -> None:
        if engine.phase in (Phase.STOPPING, Phase.GONE):
            return
        failed = engine.phase is Phase.FAILED
        self._leave_line(engine)
        self._desk.interrupt(engine, counts=False)
        self._unready(engine)
        engine.phase = Phase.STOPPING
        engine.change += 1
        engine.set_loading(True, self._clock.now)
        stop_s = 0.0 if failed else self._timing(engine).stop_s
        self._clock.at(self._clock.now + stop_s, self._gone, engine, engine.change)

    def doze(self, engine: SimulatedEngine) -> None:
        """It is to fall asleep."""
        self._leave_line(engine)
        engine.change += 1
        self._clock.at(self._clock.now + self._wake_s(engine), self._asleep, engine, engine.change)

    def wake(self, engine: SimulatedEngine) -> None:
        if engine.phase is Phase.SLEEPING:
            self._state.tally.counts["wakes"] += 1
            self._load(engine, self._wake_s(engine))
        else:
            engine.change += 1  # it was told to fall asleep, and has not begun
        self.reopen(engine)

    def close(self, engine: SimulatedEngine) -> None:
        engine.closing = True
        self._unready(engine)
        self._leave_line(engine)
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
        self._leave_line(engine)
        self._ready(engine)
        self._ask(engine)

    def forget(self, engine: SimulatedEngine) -> None:
        """It has left, or is given up."""
        self.engines.pop(engine.id, None)
        if engine.machine.engines.pop(engine.id, None) is not None:
            self._state.held.add(self._stats(engine), -len(engine.devices), self._clock.now)

    def _ask(self, engine: SimulatedEngine) -> None:
        """A gang that has no task asks for one. (One that loads takes a task as well, if no other gang is at work: that
        changes nothing for who waits.)"""
        own = self._line(engine)
        if own is not None and isinstance(own.line, TaskLine) and engine.serves and not engine.requests:
            own.line.ask(engine)
            self._desk.serve(own)

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
        self._ready(engine)
        self._ask(engine)
        if crashes := self._state.scenario.faults.crashes_a_day:
            at = self._clock.now + self._state.rng.expovariate(crashes / DAY_S)
            self._clock.at(at, self._crash, engine, change)
        self._state.hear(engine.machine)

    def _crash(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change == change:
            self._fail(engine)

    def _fail(self, engine: SimulatedEngine) -> None:
        self._leave_line(engine)
        self._desk.interrupt(engine, counts=True)
        self._unready(engine)
        engine.phase = Phase.FAILED
        engine.change += 1
        engine.machine.changed = True
        self._state.hear(engine.machine)

    def _gone(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change == change:
            engine.phase = Phase.GONE
            engine.machine.changed = True
            engine.set_loading(False, self._clock.now)
            self._state.hear(engine.machine)

    def _asleep(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change == change:
            self._unready(engine)
            engine.phase = Phase.SLEEPING
            engine.machine.changed = True
            self._state.hear(engine.machine)

    def _ready(self, engine: SimulatedEngine) -> None:
        if engine.serves and not engine.counted:
            engine.counted = True
            self._state.ready.add(self._stats(engine), 1, self._clock.now)

    def _unready(self, engine: SimulatedEngine) -> None:
        if engine.counted:
            engine.counted = False
            self._state.ready.add(self._stats(engine), -1, self._clock.now)

    def _leave_line(self, engine: SimulatedEngine) -> None:
        own = self._line(engine)
        if own is not None and isinstance(own.line, TaskLine):
            own.line.leave(engine)

    def _line(self, engine: SimulatedEngine) -> ModelLine | None:
        return self._state.lines.get(engine.model)

    def _stats(self, engine: SimulatedEngine) -> str:
        return engine.model.partition("#")[0]

    def _timing(self, engine: SimulatedEngine) -> Timing:
        return self._models[self._stats(engine)].timing

    def _wake_s(self, engine: SimulatedEngine) -> float:
        timing = self._timing(engine)
        return timing.load_s * _WAKE_SHARE if timing.wake_s is None else timing.wake_s
