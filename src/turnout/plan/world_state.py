"""What the parts of a simulated world share: the clock, the random numbers, the models with their queues, what is counted, and what
the manager has not been told yet."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from math import inf

from turnout.fleet.events_and_commands import Event, ModelSet
from turnout.fleet.model_rules import Model
from turnout.fleet.route_rules import Demand
from turnout.fleet.scaling_rules import replicas_needed
from turnout.plan.gpu_meter import GpuMeter
from turnout.plan.outcome import Measurements, TimeSeries
from turnout.plan.scenario import PlannedModel, Scenario
from turnout.plan.simulated_machine import SimulatedEngine, SimulatedMachine
from turnout.plan.simulated_queues import SimulatedSeats, SimulatedTaskQueue
from turnout.tasks.task_rules import TenantId

_LAZY_S = 2.0  # as often as workers report who is busy


class VirtualClock:
    """Time that passes from one event to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, act: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._heap, (when, next(self._numbers), act, arguments))

    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def run_next(self) -> None:
        self.now, _, act, arguments = heapq.heappop(self._heap)
        act(*arguments)


class SimulatedModel:
    """One model in the world; for a job, one request. `have` is how many replicas serve it or will, `sign` what the manager
    was last told of its load, as far as it matters. `stats` is the name that figures are kept under."""

    __slots__ = ("asked_at", "have", "model", "queue", "running", "sign", "spec", "stats")

    def __init__(self, model: PlannedModel, spec: Model, queue: SimulatedTaskQueue | SimulatedSeats) -> None:
        self.model = model
        self.spec = spec
        self.stats = model.name
        self.queue = queue
        self.running = 0
        self.have = 0
        self.asked_at = -inf
        self.sign: tuple[int, bool] = (0, False)

    def demand(self, now: float) -> Demand:
        waiting = self.queue.waiting
        if waiting or self.running:
            self.asked_at = now
        return Demand(waiting, self.running, self.asked_at)

    def signature(self) -> tuple[int, bool]:
        """Equal values lead to equal decisions, whatever the exact load: how many replicas are missing (at most as many
        are added as there are), or -1 when there are too many; and whether there is any load."""
        load, spec = self.queue.waiting + self.running, self.spec
        needed = replicas_needed(load, spec.concurrency, spec.scaling.min_replicas, spec.scaling.max_replicas)
        if needed > self.have:
            return min(needed - self.have, max(1, self.have)), load > 0
        return -1 if self.have > max(needed, 1) else 0, load > 0


class WorldState:
    def __init__(self, scenario: Scenario, *, jobs: bool) -> None:
        self.scenario = scenario
        self.settings = scenario.service
        self.jobs = jobs  # each request is a model of its own, with one replica that leaves afterwards
        self.clock = VirtualClock()
        self.rng = random.Random(f"{scenario.seed}:world")
        self.measured = Measurements()
        self.meter = GpuMeter(scenario.horizon_s)
        self.waiting = TimeSeries(scenario.horizon_s)
        self.held = TimeSeries(scenario.horizon_s)
        self.ready = TimeSeries(scenario.horizon_s)
        self.machines_on = TimeSeries(scenario.horizon_s)
        self.models: dict[str, SimulatedModel] = {}
        self.events: list[Event] = []  # for the manager
        self.dirty: dict[SimulatedMachine, None] = {}  # whose workers have something to report
        self.asked: dict[str, None] = {}  # models whose demand has changed
        self.look_at = inf
        self.pressed = False  # some model lacks replicas
        self._look: Callable[[float], None] = lambda _: None
        self._running, self._held = Counter[TenantId](), Counter[TenantId]()

    def when_news(self, look: Callable[[float], None]) -> None:
        self._look = look

    def news(self, when: float = 0.0) -> None:
        """The manager should look, at `when` or as soon as it does."""
        at = max(when, self.clock.now + self.settings.look_s)
        if at < self.look_at:
            self.look_at = at
            self.clock.at(at, self._look, at)

    def load_changed(self, own: SimulatedModel) -> None:
        """A model that begins to lack replicas is news; other changes of the load may wait a little, unless somebody
        waits for room."""
        self.asked[own.spec.name] = None
        sign = own.signature()
        if sign != own.sign:
            at_once = self.pressed or (sign[0] > 0 and own.sign[0] <= 0)
            self.news(0.0 if at_once else self.clock.now + _LAZY_S)

    def hear(self, machine: SimulatedMachine) -> None:
        """The machine's worker reports."""
        self.dirty[machine] = None
        self.news()

    def withdraw(self, engine: SimulatedEngine) -> None:
        """A gang asks for no task any more."""
        own = self.models.get(engine.model)
        if own is not None and isinstance(own.queue, SimulatedTaskQueue):
            own.queue.leave(engine)

    def count_ready(self, engine: SimulatedEngine) -> None:
        if engine.serves and not engine.counted:
            engine.counted = True
            self.ready.add(engine.stats, 1, self.clock.now)

    def count_unready(self, engine: SimulatedEngine) -> None:
        if engine.counted:
            engine.counted = False
            self.ready.add(engine.stats, -1, self.clock.now)

    def add_model(self, model: PlannedModel, spec: Model) -> SimulatedModel:
        if model.video:
            queue = SimulatedTaskQueue(self.settings, self._running, self._held, self.rng)
        else:
            queue = SimulatedSeats(self.settings)
        own = self.models[spec.name] = SimulatedModel(model, spec, queue)
        self.events.append(ModelSet(spec))
        return own
