"""What breaks engines in a simulated world: they crash, are killed, and die with their machine."""

from collections.abc import Iterable

from turnout.fleet.replica_rules import Phase
from turnout.plan.scenario import DAY_S
from turnout.plan.simulated_machine import SimulatedEngine, SimulatedMachine
from turnout.plan.simulated_requests import SimulatedRequests
from turnout.plan.world_state import WorldState


class EngineFaults:
    def __init__(self, state: WorldState, requests: SimulatedRequests) -> None:
        self._state = state
        self._clock = state.clock
        self._requests = requests

    def may_crash(self, engine: SimulatedEngine) -> None:
        """An engine that was loaded will crash, unless it leaves before."""
        if crashes := self._state.scenario.faults.crashes_a_day:
            at = self._clock.now + self._state.rng.expovariate(crashes / DAY_S)
            self._clock.at(at, self._crash, engine, engine.change)

    def kill_one(self, engines: Iterable[SimulatedEngine], model: str) -> None:
        """One of the model's replicas is killed, a busy one if there is one."""
        alive = [e for e in engines if e.model == model and e.phase is Phase.READY]
        if alive:
            self._fail(min(alive, key=lambda e: (not e.requests, e.id)))

    def lose(self, machine: SimulatedMachine) -> None:
        """Its machine has died; what it had under way is missed only when leases run out."""
        for engine in tuple(machine.engines.values()):
            self._state.withdraw(engine)
            engine.change += 1
            self._state.count_unready(engine)
            own = self._state.models.get(engine.model)
            if own is not None and own.model.video:
                self._clock.at(self._clock.now + self._state.settings.lease_s, self._miss, engine)
            else:
                self._miss(engine)

    def _miss(self, engine: SimulatedEngine) -> None:
        self._requests.interrupt(engine, counts=True)
        engine.phase = Phase.FAILED

    def _crash(self, engine: SimulatedEngine, change: int) -> None:
        if engine.change == change:
            self._fail(engine)

    def _fail(self, engine: SimulatedEngine) -> None:
        self._state.withdraw(engine)
        self._requests.interrupt(engine, counts=True)
        self._state.count_unready(engine)
        engine.phase = Phase.FAILED
        engine.change += 1
        engine.machine.changed = True
        self._state.hear(engine.machine)
