"""Requests in a simulated world: they come, wait, are begun by an engine, end, are refused or interrupted."""

from dataclasses import replace

from turnout.chat.seat_rules import Waiter
from turnout.fleet.events_and_commands import ModelRemoved
from turnout.fleet.replica_rules import Phase
from turnout.plan.scenario import PlannedModel
from turnout.plan.simulated_machine import SimulatedEngine
from turnout.plan.simulated_queues import SimulatedSeats, SimulatedTaskQueue
from turnout.plan.traffic import PlannedRequest
from turnout.plan.world_state import SimulatedModel, WorldState


class SimulatedRequests:
    def __init__(self, state: WorldState, models: dict[str, PlannedModel]) -> None:
        self._state = state
        self._models = models
        self._clock = state.clock
        self._measured = state.measured

    def arrive(self, request: PlannedRequest) -> None:
        state = self._state
        self._measured.counts.requests += 1
        if state.jobs:
            model = self._models[request.model]
            name = f"{model.name}#{request.number}"
            own = state.add_model(
                model,
                replace(
                    model.spec,
                    name=name,
                    scaling=replace(model.spec.scaling, min_replicas=0, max_replicas=1),
                ),
            )
        else:
            own = state.models[request.model]
        if isinstance(own.queue, SimulatedSeats):
            self._seat(own, own.queue, request)
        elif own.queue.join(request):
            state.waiting.add("", 1, self._clock.now)
            self.serve(own)
        else:
            self._refuse(own, request)
        self._state.load_changed(own)

    def serve(self, own: SimulatedModel) -> None:
        """Gives out what waits to those who may have it."""
        for request, engine in own.queue.matches():
            self._state.waiting.add("", -1, self._clock.now)
            self._begin(own, request, engine)

    def interrupt(self, engine: SimulatedEngine, *, counts: bool) -> None:
        """Its requests come back: a video goes on from its checkpoint, a chat request begins again."""
        own = self._state.models.get(engine.model)
        if own is not None and isinstance(own.queue, SimulatedSeats):
            own.queue.fail(engine)
        for request, since in tuple(engine.requests.items()):
            engine.end(request, self._clock.now)
            if own is None:
                continue
            self._release(own, request, engine)
            if own.model.video:
                every_s = own.model.timing.checkpoint_s
                request.seconds -= min(request.seconds, every_s * ((self._clock.now - since) // every_s))
            request.failures += counts
            self._again(own, request)
        if own is not None:
            self._state.load_changed(own)

    def refuse_all(self, own: SimulatedModel) -> None:
        for request in own.queue.refuse_all():
            self._state.waiting.add("", -1, self._clock.now)
            self._refuse(own, request)
        self._state.load_changed(own)

    def count_unfinished(self) -> None:
        """At the end: what still waits was never served."""
        for own in self._state.models.values():
            self._measured.counts.unfinished += own.running + own.queue.waiting
            for request in own.queue.refuse_all():
                self._count_unserved(own, request)

    def _again(self, own: SimulatedModel, request: PlannedRequest) -> None:
        if request.failures >= self._state.settings.max_attempts:
            self._measured.counts.failed += 1
        elif isinstance(own.queue, SimulatedSeats):
            self._seat(own, own.queue, request)
        else:
            own.queue.join(request)
            self._state.waiting.add("", 1, self._clock.now)
            self.serve(own)

    def _seat(self, own: SimulatedModel, seats: SimulatedSeats, request: PlannedRequest) -> None:
        own.asked_at = self._clock.now
        engine = seats.seat(request)
        if engine is not None:
            return self._begin(own, request, engine)
        if seats.refusal is not None:
            return self._refuse(own, request)
        waiter, crowded_out = seats.join(request)
        if crowded_out is not None:
            self._state.waiting.add("", -1, self._clock.now)
            self._refuse(own, crowded_out)
        if waiter is None:
            return self._refuse(own, request)
        self._state.waiting.add("", 1, self._clock.now)
        if not self._state.jobs:
            self._clock.at(
                self._clock.now + self._state.settings.patience_s, self._lose_patience, own, seats, waiter
            )

    def _lose_patience(self, own: SimulatedModel, seats: SimulatedSeats, waiter: Waiter) -> None:
        request = seats.give_up(waiter)
        if request is not None:
            self._state.waiting.add("", -1, self._clock.now)
            self._refuse(own, request)
            self._state.load_changed(own)

    def _refuse(self, own: SimulatedModel, request: PlannedRequest) -> None:
        self._measured.counts.refused += 1
        self._count_unserved(own, request)

    def _count_unserved(self, own: SimulatedModel, request: PlannedRequest) -> None:
        if request.began_at is None:
            self._measured.unserved[own.stats].append(request.at)

    def _begin(self, own: SimulatedModel, request: PlannedRequest, engine: SimulatedEngine) -> None:
        own.running += 1
        # An idle gang asks for tasks five times a second; one that has just ended a task asks at once.
        was_idle = own.model.video and engine.ended_at < self._clock.now
        self._run(own, request, engine, self._state.settings.claim_s if was_idle else 0.0)

    def _run(
        self, own: SimulatedModel, request: PlannedRequest, engine: SimulatedEngine, delay_s: float
    ) -> None:
        now = self._clock.now
        engine.begin(request, now)
        self._touch(engine)
        if request.began_at is None:
            request.began_at = now + delay_s
            self._measured.waits[own.stats].append(request.began_at - request.at)
        timing, seconds = own.model.timing, request.seconds
        if timing.tokens_per_s is not None and request.tokens:
            rate = timing.tokens_per_s
            if timing.total_tokens_per_s is not None:
                rate = min(rate, timing.total_tokens_per_s / len(engine.requests))
            seconds = timing.prompt_s + request.tokens / rate
        self._clock.at(now + delay_s + seconds, self._finish, own, request, engine)

    def _finish(self, own: SimulatedModel, request: PlannedRequest, engine: SimulatedEngine) -> None:
        if request not in engine.requests or engine.phase is not Phase.READY or engine.machine.gone:
            return  # it was interrupted
        engine.end(request, self._clock.now)
        self._touch(engine)
        self._release(own, request, engine)
        self._measured.counts.served += 1
        self._measured.counts.videos += own.model.video
        self._measured.counts.tokens += request.tokens
        if self._state.jobs:
            name = own.spec.name
            del self._state.models[name]
            self._state.events.append(ModelRemoved(name))
            return self._state.hear(engine.machine)
        if isinstance(own.queue, SimulatedTaskQueue) and engine.serves:
            own.queue.ask(engine)
        self.serve(own)
        if engine.closing and not engine.requests:
            self._state.hear(engine.machine)  # its worker reports at once
        self._state.load_changed(own)

    def _release(self, own: SimulatedModel, request: PlannedRequest, engine: SimulatedEngine) -> None:
        own.running -= 1
        own.asked_at = self._clock.now
        if isinstance(own.queue, SimulatedTaskQueue):
            own.queue.ended(request)
        else:
            own.queue.ended(engine)

    def _touch(self, engine: SimulatedEngine) -> None:
        """Whether it is busy may have to be reported."""
        if engine.reported_busy is not bool(engine.requests) or engine.idle_since is not None:
            self._state.dirty[engine.machine] = None
