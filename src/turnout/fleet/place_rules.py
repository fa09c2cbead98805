"""Serves claims: wake a replica, start one, wait for room that is being made, or make room. Pure.

Claims are served in order, and one that must wait for room keeps it reserved: small models cannot starve a large
one. The replicas used least recently make room. A model that has users is evicted only after its minimum stay, and only
for a model that has users and nothing to serve them.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from turnout.fleet.capacity_rules import Capacity, Feasibility
from turnout.fleet.events_and_commands import Command, GiveUp, SetWant, StartReplica, TakeUp
from turnout.fleet.fleet_rules import Fleet, load_of, stay_s
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model, Needs
from turnout.fleet.placement_rules import Room, fewest_victims, needs_on, room_later, room_now, with_freed
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, Want
from turnout.fleet.scale_rules import Claim, Urgency, rest_of
from turnout.fleet.scaling_rules import leave_order
from turnout.fleet.tend_rules import leave
from turnout.fleet.worker_rules import Standing, Worker

_MAX_MACHINES = 32  # machines on which a set of victims is worked out for one claim
_MAX_OPTIONS = 4  # sets to choose from
_AFTER_FAILURE_S = 60.0  # so long after the retry is due, a start counts as one after a failure
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
        self._serving: dict[str, int] = {}
        self._evicted: Counter[str] = Counter()
        self._placed: dict[str, dict[WorkerId, int]] = {}
        self._used: set[ReplicaId] = set()  # victims and woken ones of this pass
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
        sleepers = [r for r in self._by_model.get(model.name, ()) if r.asleep and r.id not in self._used]
        sleepers = [r for r in sleepers if r.worker in self._later_rooms]
        for sleeper in sorted(sleepers, key=lambda r: -r.used_at):
            commands = self._wake(claim, sleeper)
            if commands is not None:
                return commands
        if self._total.get(model.name, 0) >= model.scaling.max_replicas:
            if sleepers and self._total[model.name] == len(sleepers):
                self._used.add(sleepers[0].id)
                return [SetWant(sleepers[0].id, Want.GONE, "it cannot wake where it sleeps")]
            return ()
        found = self._best(self._now_rooms, model)
        if found is not None:
            return self._start(claim, model, *found)
        found = self._best(self._later_rooms, model)
        if found is not None:
            self._reserve(*found)
            return ()
        return self._make_room(claim, model)

    def _wake(self, claim: Claim, sleeper: Replica) -> Iterable[Command] | None:
        """What wakes it, now or later; None when nothing does."""
        worker, gpus = sleeper.worker, sleeper.gpus
        more = sleeper.needs.gpu_memory_bytes - sleeper.needs.asleep_gpu_memory_bytes
        needs = Needs(len(gpus), more)
        if worker in self._now_rooms and self._now_rooms[worker].holds(gpus, more, 0):
            self._used.add(sleeper.id)
            self._reserve(worker, gpus, needs)
            self._now_rooms[worker].block(gpus)
            return [SetWant(sleeper.id, Want.READY, "asked for")]
        if self._later_rooms[worker].holds(gpus, more, 0):
            self._reserve(worker, gpus, needs)
            return ()
        victims = fewest_victims(self._later_rooms[worker], self._candidates(worker, claim), needs, gpus)
        if victims is None:
            return None
        commands = self._evict(claim, victims, worker, needs, gpus)
        self._reserve(worker, gpus, needs)
        return commands

    def _best(self, rooms: Capacity, model: Model) -> tuple[WorkerId, tuple[int, ...], Needs] | None:
        """The machine with fewest replicas of the model, then one with its weights, then the tightest fit, among the
        first of those on which it fits."""
        here = self._replicas_by_worker(model.name)
        stored = (*self._weights.get(model.name, ()), *self._weights.get(model.weights, ()))
        best: tuple[int, bool, bool, int, WorkerId] | None = None
        found: tuple[WorkerId, tuple[int, ...], Needs] | None = None
        for room, needs, gpus in itertools.islice(rooms.fitting(model, stored), _MAX_FITTING):
            worker_id, machine = room.worker.id, room.worker.machine
            left = sum(room.gpus[i] for i in gpus) if gpus else room.memory
            away = model.name not in machine.weights and model.weights not in machine.weights
            rank = (here.get(worker_id, 0), away, not gpus and bool(machine.gpus), left, worker_id)
            if best is None or rank < best:
                best, found = rank, (worker_id, gpus, needs)
        return found

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
        here = self._replicas_by_worker(model.name)
        here[worker] = here.get(worker, 0) + 1
        self._reserve(worker, gpus, needs)
        self._now_rooms[worker].block(gpus)
        self._total[model.name] = self._total.get(model.name, 0) + 1
        failures = self._fleet.failures.get(model.name)
        failed = failures is not None and self._now - failures.retry_at < _AFTER_FAILURE_S
        cause = "failure" if failed else _CAUSES[claim.urgency]
        return [StartReplica(next(self._ids), model.name, worker, gpus, needs, cause)]

    def _reserve(self, worker: WorkerId, gpus: tuple[int, ...], needs: Needs) -> None:
        for rooms in (self._now_rooms, self._later_rooms, *self._emptied.values()):
            rooms.take(worker, gpus, needs)

    def _make_room(self, claim: Claim, model: Model) -> Iterable[Command]:
        options: list[tuple[tuple[bool, int, int, float], WorkerId, list[Replica]]] = []
        for worker_id in self._promising(claim, model):
            room = self._later_rooms[worker_id]
            victims = fewest_victims(
                room, self._candidates(worker_id, claim), needs_on(model, room.worker.machine)
            )
            if victims is None:
                continue
            cost = (
                not all(self._mature(v) for v in victims),
                sum(load_of(self._fleet, v.model) > 0 for v in victims),
                len(victims),
                max(v.used_at for v in victims),
            )
            options.append((cost, worker_id, victims))
            if len(options) >= _MAX_OPTIONS:
                break
        if not options:
            return ()
        _, worker_id, victims = min(options, key=lambda option: option[:2])
        room = self._later_rooms[worker_id]
        needs = needs_on(model, room.worker.machine)
        gpus = with_freed(room, victims).fit(needs) or ()
        commands = self._evict(claim, victims, worker_id, needs, gpus)
        self._reserve(worker_id, gpus, needs)
        return commands

    def _evict(
        self, claim: Claim, victims: Sequence[Replica], worker: WorkerId, needs: Needs, gpus: tuple[int, ...]
    ) -> list[Command]:
        """Lets the victims go, if all of them may go by now; else the room is only kept for the claim. Those that can
        sleep do, where what they keep leaves enough room."""
        if not all(self._mature(v) for v in victims):
            return []
        room = self._later_rooms[worker]
        models = self._fleet.models
        asleep = [v for v in victims if v.phase is Phase.READY and rest_of(models[v.model], v) is Want.ASLEEP]
        freed = with_freed(room, victims, asleep)
        if not freed.holds(gpus, needs.gpu_memory_bytes, needs.memory_bytes):
            asleep, freed = [], with_freed(room, victims)
        self._later_rooms.replace(worker, freed)
        self._used.update(v.id for v in victims)
        self._evicted.update(v.model for v in victims if v.open)
        return [
            leave(v, f"room for {claim.model}", Want.ASLEEP if v in asleep else Want.GONE, claim.model)
            for v in victims
        ]

    def _promising(self, claim: Claim, model: Model) -> Iterator[WorkerId]:
        """Machines that would have room if all who may leave left; looked at once for a pass."""
        if claim.urgency not in self._emptied:
            nobody = replace(claim, model="")
            self._emptied[claim.urgency] = Capacity(
                (w for w in self._fleet.workers.values() if w.id in self._later_rooms),
                lambda w: with_freed(self._later_rooms[w.id], self._candidates(w.id, nobody)),
                derived=True,
            )
        fitting = self._emptied[claim.urgency].fitting(model)
        return (room.worker.id for room, _, _ in itertools.islice(fitting, _MAX_MACHINES))

    def _spare(self, model: str) -> int:
        """How many of the model's replicas may be evicted yet: those beyond the ones kept warm."""
        if model not in self._serving:
            self._serving[model] = sum(r.open for r in self._by_model.get(model, ()))
        return self._serving[model] - self._fleet.models[model].scaling.min_replicas - self._evicted[model]

    def _mature(self, replica: Replica) -> bool:
        """Whether it had its minimum stay."""
        if replica.asleep:
            return True
        ready_at = replica.ready_at if replica.phase is Phase.READY else None
        return ready_at is not None and self._now - ready_at >= stay_s(self._fleet, replica)

    def _candidates(self, worker: WorkerId, claim: Claim) -> list[Replica]:
        """Who could leave the machine for the claim, in the order in which they should."""
        ranked: list[tuple[tuple[int, float], ReplicaId, Replica]] = []
        for replica in self._by_worker.get(worker, ()):
            if replica.leaving or replica.id in self._used or replica.model == claim.model:
                continue
            if replica.asleep and replica.busy == 0:
                ranked.append(((0, replica.used_at), replica.id, replica))
                continue
            if not replica.open or replica.model not in self._fleet.models:
                continue
            used = load_of(self._fleet, replica.model) > 0 or replica.busy > 0
            mature = self._mature(replica)
            if claim.urgency is not Urgency.WAITED_FOR and (used or not mature):
                continue
            since = replica.created_at if replica.ready_at is None else replica.ready_at
            ranked.append((leave_order(mature, used, since, replica.used_at), replica.id, replica))
        ranked.sort(key=lambda one: one[:2])
        candidates: list[Replica] = []
        spare: dict[str, int] = {}
        for *_, replica in ranked:
            if replica.open:
                if replica.model not in spare:
                    spare[replica.model] = self._spare(replica.model)
                left = spare[replica.model]
                spare[replica.model] = left - 1
                if left <= 0:
                    continue  # kept warm: min_replicas
            candidates.append(replica)
        return candidates
