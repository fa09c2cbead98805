"""What the parts of a simulated world share: the clock, the random numbers, the models' lines, what is counted, and what
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
from turnout.plan.outcome import Tally, TimeSeries
from turnout.plan.request_lines import SeatLine, TaskLine
from turnout.plan.scenario import PlannedModel, Scenario
from turnout.plan.simulated_machine import SimulatedMachine
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


class ModelLine:
    """One model in the world; for a job, one request. `have` is how many replicas serve it or will, `sign` what the manager
    was last told of its load, as far as it matters. `stats` is the name that figures are kept under."""

    __slots__ = ("asked_at", "have", "line", "model", "running", "served", "sign", "stats")

    def __init__(self, model: PlannedModel, served: Model, line: TaskLine | SeatLine) -> None:
        self.model = model
        self.served = served
        self.stats = model.name
        self.line = line
        self.running = 0
        self.have = 0
        self.asked_at = -inf
        self.sign: tuple[int, bool] = (0, False)

    def demand(self, now: float) -> Demand:
        waiting = self.line.waiting
        if waiting or self.running:
            self.asked_at = now
        return Demand(waiting, self.running, self.asked_at)

    def signature(self) -> tuple[int, bool]:
        """Equal values lead to equal decisions, whatever the exact load: how many replicas are missing (at most as many
        are added as there are), or -1 when there are too many; and whether there is any load."""
        load, served = self.line.waiting + self.running, self.served
        needed = replicas_needed(
            load, served.concurrency, served.scaling.min_replicas, served.scaling.max_replicas
        )
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
        self.tally = Tally()
        self.meter = GpuMeter(scenario.horizon_s)
        self.queue = TimeSeries(scenario.horizon_s)
        self.held = TimeSeries(scenario.horizon_s)
        self.ready = TimeSeries(scenario.horizon_s)
        self.machines_on = TimeSeries(scenario.horizon_s)
        self.lines: dict[str, ModelLine] = {}
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

    def load_changed(self, own: ModelLine) -> None:
        """A model that begins to lack replicas is news; other changes of the load may wait a little, unless somebody
        waits for room."""
        self.asked[own.served.name] = None
        sign = own.signature()
        if sign != own.sign:
            at_once = self.pressed or (sign[0] > 0 and own.sign[0] <= 0)
            self.news(0.0 if at_once else self.clock.now + _LAZY_S)

    def hear(self, machine: SimulatedMachine) -> None:
        """The machine's worker reports."""
        self.dirty[machine] = None
        self.news()

    def add_model(self, model: PlannedModel, served: Model) -> ModelLine:
        if model.video:
            line = TaskLine(self.settings, self._running, self._held, self.rng)
        else:
            line = SeatLine(self.settings)
        own = self.lines[served.name] = ModelLine(model, served, line)
        self.events.append(ModelSet(served))
        return own
