"""Serves claims: wake a replica, start one, wait for room that is being made, or make room. Pure.

Claims are served in order, and one that must wait for room keeps it reserved: small models cannot starve a large
one. The replicas used least recently make room. A model that has users is evicted only after its minimum stay, and only
for a model that has users and nothing to serve them. Replicas that are kept warm move for such a model: one that is in
the way is started elsewhere, and leaves when that one is ready.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from turnout.fleet.capacity_rules import Capacity, Feasibility, has_places, larger_models
from turnout.fleet.events_and_commands import Command, GiveUp, SetWant, StartReplica, TakeUp
from turnout.fleet.eviction_rules import Evictions
from turnout.fleet.fleet_rules import Fleet, load_of
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs
from turnout.fleet.placement_rules import (
    Room,
    could_ever_fit,
    fewest_victims,
    fits_beside,
    needs_on,
    room_later,
    room_now,
    with_freed,
)
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, Want
from turnout.fleet.scale_rules import Claim, Urgency, rest_of
from turnout.fleet.tend_rules import leave
from turnout.fleet.worker_rules import Standing, Worker

_MAX_MACHINES = 32  # machines on which a set of victims is worked out for one claim
_MAX_OPTIONS = 4  # sets to choose from
_AFTER_FAILURE_S = 60.0  # so long after the retry is due, a start counts as one after a failure
_MAX_LARGER = 4  # sizes of larger models that the last room is kept for
_MOVE = "move"
_CAUSES = {Urgency.WAITED_FOR: "request", Urgency.KEPT_WARM: "min_replicas", Urgency.LOADED: "load"}
_MAX_FITTING = 32  # machines to choose from: more would cost more than a better choice gains


def place(fleet: Fleet, claims: Sequence[Claim], now: float, ids: Iterator[ReplicaId]) -> list[Command]:
    feasible = Feasibility(fleet, now)
    commands: list[Command] = [
        TakeUp(name)
        for name, g in fleet.given_up.items()
        if g.until is None and feasible.possible(fleet.models[name])
    ]
    impossible = {n for n, g in fleet.given_up.items() if g.until is None} - {
        c.model for c in commands if isinstance(c, TakeUp)
    }
    if not claims:
        return commands
    planning = _PlacementPass(fleet, now, ids)
    for claim in claims:
        model = fleet.models[claim.model]
        if not feasible.possible(model):
            if fleet.workers and claim.model not in impossible:
                impossible.add(claim.model)
                commands.append(GiveUp(claim.model, feasible.why_not(model), None))
            continue
        commands += planning.serve(claim, model)
    return commands


@dataclass(frozen=True, slots=True)
class _Move:
    """Room on a worker that is there when all `movers`, which are kept warm, are ready elsewhere. Of the `replaced` that is so
    already."""

    worker: WorkerId
    gpus: tuple[int, ...]
    needs: Needs
    movers: Sequence[Replica]
    replaced: Sequence[Replica]


class _PlacementPass:
    """One planning pass: room as it is now and as it will be, less what this pass gave away."""

    def __init__(self, fleet: Fleet, now: float, ids: Iterator[ReplicaId]) -> None:
        self._fleet, self._now, self._ids = fleet, now, ids
        self._by_worker: dict[WorkerId, list[Replica]] = {}
        self._by_model: dict[str, list[Replica]] = {}
        for replica in fleet.replicas.values():
            self._by_worker.setdefault(replica.worker, []).append(replica)
            self._by_model.setdefault(replica.model, []).append(replica)
        # What leaves with its worker keeps nobody from being served elsewhere.
        drained = {w.id for w in fleet.workers.values() if w.draining}
        self._total = {
            name: sum(not (r.leaving and r.worker in drained) for r in replicas)
            for name, replicas in self._by_model.items()
        }
        self._larger: dict[Needs, list[Model]] = {}
        self._moved: set[str] = set()
        self._unmovable: set[tuple[EngineKind, Needs, float | None]] = set()  # for whom nobody can move
        self._is_kept_warm = any(m.scaling.min_replicas for m in fleet.models.values())
        self._placed: dict[str, dict[WorkerId, int]] = {}
        self._evictions = Evictions(fleet, self._by_worker, self._by_model, now)
        usable = [w for w in fleet.workers.values() if w.standing is Standing.ALIVE and not w.draining]
        self._weights: dict[str, list[WorkerId]] = {}
        for worker in usable:
            for name in worker.machine.weights:
                self._weights.setdefault(name, []).append(worker.id)
        self._now_rooms = Capacity(
            (w for w in usable if w.settled), lambda w: room_now(w, self._by_worker.get(w.id, ()))
        )
        self._later_rooms = Capacity(usable, self._room_later)
        self._emptied: dict[Urgency, Capacity] = {}

    def _room_later(self, worker: Worker) -> Room:
        freeing = not worker.settled or self._now - worker.freed_at < self._fleet.rules.freeing_s
        return room_later(worker, self._by_worker.get(worker.id, ()), freeing=freeing)

    def serve(self, claim: Claim, model: Model) -> Iterable[Command]:
        sleepers = [
            r for r in self._by_model.get(model.name, ()) if r.asleep and r.id not in self._evictions.used
        ]
        sleepers = [r for r in sleepers if r.worker in self._later_rooms]
        for sleeper in sorted(sleepers, key=lambda r: -r.used_at):
            commands = self._wake(claim, sleeper)
            if commands is not None:
                return commands
        if self._total.get(model.name, 0) >= model.scaling.max_replicas:
            if sleepers and self._total[model.name] == len(sleepers):
                self._evictions.used.add(sleepers[0].id)
                return [SetWant(sleepers[0].id, Want.GONE, "it cannot wake where it sleeps")]
            return ()
        found = self._best(self._now_rooms, model)
        if found is not None:
            return self._start(claim, model, *found)
        found = self._best(self._later_rooms, model)
        if found is not None:
            self._reserve(*found)
            return ()
        made = self._make_room(claim, model)
        return self._move_others(claim, model) if made is None else made

    def _wake(self, claim: Claim, sleeper: Replica) -> Iterable[Command] | None:
        """What wakes it, now or later; None when nothing does."""
        worker, gpus = sleeper.worker, sleeper.gpus
        more = sleeper.needs.gpu_memory_bytes - sleeper.needs.asleep_gpu_memory_bytes
        needs = Needs(len(gpus), more)
        if worker in self._now_rooms and self._now_rooms[worker].holds(gpus, more, 0):
            self._evictions.used.add(sleeper.id)
            self._reserve(worker, gpus, needs)
            self._now_rooms[worker].block(gpus)
            return [SetWant(sleeper.id, Want.READY, "asked for")]
        if self._later_rooms[worker].holds(gpus, more, 0):
            self._reserve(worker, gpus, needs)
            return ()
        victims = fewest_victims(
            self._later_rooms[worker], self._evictions.candidates(worker, claim), needs, gpus
        )
        if victims is None:
            return None
        commands = self._evict(claim, victims, worker, needs, gpus)
        self._reserve(worker, gpus, needs)
        return commands

    def _best(self, rooms: Capacity, model: Model) -> tuple[WorkerId, tuple[int, ...], Needs] | None:
        """The machine with fewest replicas of the model, then one with its weights, then the tightest fit, among the
        first of those on which it fits. One that has the last room for a larger model is taken if there is no other."""
        stored = (*self._weights.get(model.name, ()), *self._weights.get(model.weights, ()))
        fitting = list(itertools.islice(rooms.fitting(model, stored), _MAX_FITTING))
        if not fitting:
            return None
        here = self._replicas_by_worker(model.name)
        last_rooms = self._last_rooms(rooms, model) if len(fitting) > 1 else {}

        def rank(place: tuple[Room, Needs, tuple[int, ...]]) -> tuple[bool, int, bool, bool, int, WorkerId]:
            room, needs, gpus = place
            worker_id, machine = room.worker.id, room.worker.machine
            left = sum(room.gpus[i] for i in gpus) if gpus else room.memory
            away = model.name not in machine.weights and model.weights not in machine.weights
            spoils = any(not fits_beside(room, gpus, needs, large) for large in last_rooms.get(worker_id, ()))
            return spoils, here.get(worker_id, 0), away, not gpus and bool(machine.gpus), left, worker_id

        room, needs, gpus = min(fitting, key=rank)
        return room.worker.id, gpus, needs

    def _last_rooms(self, rooms: Capacity, model: Model) -> dict[WorkerId, list[Needs]]:
        """Machines that are the only one with room for a larger model, and what that one needs."""
        if model.needs not in self._larger:
            self._larger[model.needs] = larger_models(model, self._fleet.models.values())[:_MAX_LARGER]
        last: dict[WorkerId, list[Needs]] = {}
        for large in self._larger[model.needs]:
            two = list(itertools.islice(rooms.fitting(large), 2))
            if len(two) == 1:
                [(room, needs, _)] = two
                last.setdefault(room.worker.id, []).append(needs)
        return last

    def _replicas_by_worker(self, model: str) -> dict[WorkerId, int]:
        """How many replicas of the model each machine has."""
        if model not in self._placed:
            here = self._placed[model] = {}
            for replica in self._by_model.get(model, ()):
                here[replica.worker] = here.get(replica.worker, 0) + 1
        return self._placed[model]

    def _start(
        self, claim: Claim, model: Model, worker: WorkerId, gpus: tuple[int, ...], needs: Needs
    ) -> list[Command]:
        failures = self._fleet.failures.get(model.name)
        failed = failures is not None and self._now - failures.retry_at < _AFTER_FAILURE_S
        cause = "failure" if failed else _CAUSES[claim.urgency]
        return self._started(model, worker, gpus, needs, cause)

    def _started(
        self, model: Model, worker: WorkerId, gpus: tuple[int, ...], needs: Needs, cause: str
    ) -> list[Command]:
        here = self._replicas_by_worker(model.name)
        here[worker] = here.get(worker, 0) + 1
        self._reserve(worker, gpus, needs)
        self._now_rooms[worker].block(gpus)
        self._total[model.name] = self._total.get(model.name, 0) + 1
        return [StartReplica(next(self._ids), model.name, worker, gpus, needs, cause)]

    def _reserve(self, worker: WorkerId, gpus: tuple[int, ...], needs: Needs) -> None:
        for rooms in (self._now_rooms, self._later_rooms, *self._emptied.values()):
            rooms.take(worker, gpus, needs)

    def _make_room(self, claim: Claim, model: Model) -> Iterable[Command] | None:
        """Lets those leave who are in the way, or waits for them; None where nobody may leave."""
        options: list[tuple[tuple[bool, int, int, float], WorkerId, list[Replica]]] = []
        for worker_id in self._promising(claim, model):
            room = self._later_rooms[worker_id]
            victims = fewest_victims(
                room, self._evictions.candidates(worker_id, claim), needs_on(model, room.worker.machine)
            )
            if victims is None:
                continue
            cost = (
                not all(self._evictions.mature(v) for v in victims),
                sum(load_of(self._fleet, v.model) > 0 for v in victims),
                len(victims),
                max(v.used_at for v in victims),
            )
            options.append((cost, worker_id, victims))
            if len(options) >= _MAX_OPTIONS:
                break
        if not options:
            return None
        _, worker_id, victims = min(options, key=lambda option: option[:2])
        room = self._later_rooms[worker_id]
        needs = needs_on(model, room.worker.machine)
        gpus = with_freed(room, victims).fit(needs) or ()
        commands = self._evict(claim, victims, worker_id, needs, gpus)
        self._reserve(worker_id, gpus, needs)
        return commands

    def _move_others(self, claim: Claim, model: Model) -> Iterable[Command]:
        """Starts elsewhere what is kept warm and in the way of the claim, one replica of a model at a time, and keeps the room.
        When that one is ready, another is to spare, and leaves."""
        kind = (model.engine, model.needs, model.server.gpu_memory_utilization)
        if claim.urgency is not Urgency.WAITED_FOR or not self._is_kept_warm or kind in self._unmovable:
            return ()
        moves = [
            move
            for worker in itertools.islice(self._hosts(model), _MAX_MACHINES)
            if (move := self._move_from(worker, claim, model)) is not None
        ]
        if not moves:
            self._unmovable.add(kind)
            return ()
        best = min(moves, key=lambda move: (len(move.movers), move.worker))
        commands: list[Command] = []
        if best.replaced:
            commands += self._evict(claim, best.replaced, best.worker, best.needs, best.gpus)
        self._reserve(best.worker, best.gpus, best.needs)
        for name in sorted({mover.model for mover in best.movers}):
            commands += self._start_elsewhere(claim, self._fleet.models[name])
        return commands

    def _move_from(self, worker: Worker, claim: Claim, model: Model) -> _Move | None:
        """How the worker gets room for the claim, if all that must move from there has a place."""
        room, needs = self._later_rooms[worker.id], needs_on(model, worker.machine)
        spare = self._evictions.candidates(worker.id, claim)
        warm = [
            r
            for r in self._evictions.may_leave(worker.id, claim)
            if r not in spare and self._evictions.mature(r)
        ]
        victims = fewest_victims(room, [*spare, *warm], needs)
        if victims is None:
            return None
        freed = with_freed(room, victims)
        gpus = freed.fit(needs) or ()
        freed.take(gpus, needs.gpu_memory_bytes, needs.memory_bytes)
        movers = [v for v in victims if v in warm]
        if not has_places(movers, self._fleet.models, self._emptied_for(claim), freed.settle()):
            return None
        moving = {mover.model for mover in movers}
        replaced = [v for v in victims if v not in movers and v.model in moving and self._evictions.mature(v)]
        return _Move(worker.id, gpus, needs, movers, replaced)

    def _start_elsewhere(self, claim: Claim, model: Model) -> Iterable[Command]:
        """Starts one replica more than are kept warm, unless there is one, or one is still about to leave."""
        scaling, there = model.scaling, sum(r.open for r in self._by_model[model.name])
        leaving = self._total[model.name] > scaling.max_replicas
        if model.name in self._moved or leaving or there > scaling.min_replicas:
            return ()
        self._moved.add(model.name)
        found = self._best(self._now_rooms, model)
        if found is not None:
            return self._started(model, *found, _MOVE)
        found = self._best(self._later_rooms, model)
        if found is not None:
            self._reserve(*found)
            return ()
        return self._make_room(replace(claim, model=model.name), model) or ()

    def _evict(
        self, claim: Claim, victims: Sequence[Replica], worker: WorkerId, needs: Needs, gpus: tuple[int, ...]
    ) -> list[Command]:
        """Lets the victims go, if all of them may go by now; else the room is only kept for the claim. Those that can
        sleep do, where what they keep leaves enough room."""
        if not all(self._evictions.mature(v) for v in victims):
            return []
        room = self._later_rooms[worker]
        models = self._fleet.models
        asleep = [v for v in victims if v.phase is Phase.READY and rest_of(models[v.model], v) is Want.ASLEEP]
        freed = with_freed(room, victims, asleep)
        if not freed.holds(gpus, needs.gpu_memory_bytes, needs.memory_bytes):
            asleep, freed = [], with_freed(room, victims)
        self._later_rooms.replace(worker, freed)
        self._evictions.count(victims)
        return [
            leave(v, f"room for {claim.model}", Want.ASLEEP if v in asleep else Want.GONE, claim.model)
            for v in victims
        ]

    def _promising(self, claim: Claim, model: Model) -> Iterator[WorkerId]:
        """Machines that would have room if all who may leave left."""
        fitting = self._emptied_for(claim).fitting(model)
        return (room.worker.id for room, _, _ in itertools.islice(fitting, _MAX_MACHINES))

    def _emptied_for(self, claim: Claim) -> Capacity:
        """The machines as if all who may leave for such a claim had left; looked at once for a pass."""
        if claim.urgency not in self._emptied:
            nobody = replace(claim, model="")
            self._emptied[claim.urgency] = Capacity(
                (w for w in self._fleet.workers.values() if w.id in self._later_rooms),
                lambda w: with_freed(self._later_rooms[w.id], self._evictions.candidates(w.id, nobody)),
                derived=True,
            )
        return self._emptied[claim.urgency]

    def _hosts(self, model: Model) -> Iterator[Worker]:
        """Usable workers that could have the model if they had nothing else."""
        for worker in self._fleet.workers.values():
            usable = worker.id in self._later_rooms and model.name not in worker.refusals
            if usable and could_ever_fit(model, worker.machine):
                yield worker
