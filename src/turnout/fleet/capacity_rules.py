"""Room on many machines for one planning pass, and whether there could ever be enough. Pure: what changes inside does
not outlive the pass."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf

from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs
from turnout.fleet.placement_rules import Room, could_ever_fit, needs_on, why_nowhere, with_freed
from turnout.fleet.replica_rules import Replica
from turnout.fleet.worker_rules import OrderRefusal, Worker

_MAX_PLACES = 32  # machines that are looked at for one replica that should move
ResourceKind = tuple[EngineKind, Needs, float | None, str]
"""What decides on which machines a model fits. Some machines refuse a model by its name."""


def _resource_kind(model: Model, refused: Collection[str]) -> ResourceKind:
    name = model.name if model.name in refused else ""
    return model.engine, model.needs, model.server.gpu_memory_utilization, name


def _refused(workers: Iterable[Worker]) -> frozenset[str]:
    return frozenset(model for worker in workers for model in worker.refusals)


class Feasibility:
    """Whether any machine could host a model if it held nothing else, and why not."""

    def __init__(self, fleet: Fleet, now: float) -> None:
        self._workers = fleet.workers.values()
        self._now = now
        self._refused = _refused(self._workers)
        self._known: dict[ResourceKind, bool] = {}

    def possible(self, model: Model) -> bool:
        kind = _resource_kind(model, self._refused)
        if kind not in self._known:
            self._known[kind] = any(
                could_ever_fit(model, w.machine) and self._refusal(model, w) is None for w in self._workers
            )
        return self._known[kind]

    def why_not(self, model: Model) -> str:
        for worker in self._workers:
            refusal = self._refusal(model, worker)
            if refusal is not None and could_ever_fit(model, worker.machine):
                return f"no worker takes it; {worker.name or worker.id} says: {refusal.reason}"
        return why_nowhere(model, [worker.machine for worker in self._workers])

    def _refusal(self, model: Model, worker: Worker) -> OrderRefusal | None:
        """A worker that only did not start it may yet: nobody is told that there is no hope."""
        refusal = worker.refusals.get(model.name)
        return refusal if refusal is not None and refusal.told and self._now < refusal.until else None


class Capacity:
    """The rooms of the machines that may be used, made when they are looked at, less what was given away meanwhile.

    A `derived` room is made from another that lacks it already.
    """

    def __init__(
        self, workers: Iterable[Worker], make: Callable[[Worker], Room], *, derived: bool = False
    ) -> None:
        self._derived = derived
        self._workers = {worker.id: worker for worker in workers}
        self._refused = _refused(self._workers.values())
        self._make = make
        self._made: dict[WorkerId, Room] = {}
        self._taken: dict[WorkerId, list[tuple[tuple[int, ...], Needs]]] = {}
        self._nowhere: set[ResourceKind] = set()  # what fits nowhere; rooms only shrink

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._workers

    def __getitem__(self, worker: WorkerId) -> Room:
        room = self._made.get(worker)
        if room is None:
            room = self._made[worker] = self._make(self._workers[worker])
            for gpus, needs in self._taken.pop(worker, ()):
                room.take(gpus, needs.gpu_memory_bytes, needs.memory_bytes)
            room.settle()
        return room

    def replace(self, worker: WorkerId, room: Room) -> None:
        self._made[worker] = room
        self._nowhere.clear()

    def take(self, worker: WorkerId, gpus: tuple[int, ...], needs: Needs) -> None:
        if worker in self._made:
            self._made[worker].take(gpus, needs.gpu_memory_bytes, needs.memory_bytes)
            self._made[worker].settle()
        elif worker in self._workers and not self._derived:
            self._taken.setdefault(worker, []).append((gpus, needs))

    def fitting(
        self, model: Model, first: Iterable[WorkerId] = ()
    ) -> Iterator[tuple[Room, Needs, tuple[int, ...]]]:
        """Machines on which the model fits, and where on each; those in `first` come first."""
        kind = _resource_kind(model, self._refused)
        if kind in self._nowhere:
            return
        preferred = [w for w in first if w in self._workers]
        found = False
        for worker in itertools.chain(preferred, self._workers):
            known = self._workers[worker]
            if model.engine not in known.machine.engines or model.name in known.refusals:
                continue
            room = self[worker]
            needs = needs_on(model, room.worker.machine)
            if room.largest < needs.gpu_memory_bytes or room.memory < needs.memory_bytes:
                continue
            gpus = room.fit(needs)
            if gpus is not None:
                found = True
                yield room, needs, gpus
        if not found:
            self._nowhere.add(kind)


def larger_models(model: Model, models: Iterable[Model]) -> list[Model]:
    """One model of each size that needs more GPUs, or more of one, than this; the largest first."""
    larger = {m.needs: m for m in models if _size(m) > _size(model) and m.needs.gpus}
    return sorted(larger.values(), key=_size, reverse=True)


def _size(model: Model) -> tuple[int, float]:
    """A share that follows from the GPU's size counts as a whole one, unless it says how large it is."""
    needs = model.needs
    return needs.gpus, needs.gpu_memory_bytes or inf


def has_places(movers: Iterable[Replica], models: Mapping[str, Model], rooms: Capacity, home: Room) -> bool:
    """Whether all movers find places at once in these rooms, or in what is left of the machine that they leave (`home`)."""
    trial = {home.worker.id: home}
    for mover in movers:
        model = models[mover.model]
        fitting = (room for room, _, _ in itertools.islice(rooms.fitting(model), _MAX_PLACES))
        for room in itertools.chain([home], fitting):
            left = trial.get(room.worker.id) or with_freed(room, ())
            needs = needs_on(model, room.worker.machine)
            gpus = left.fit(needs)
            if gpus is not None:
                left.take(gpus, needs.gpu_memory_bytes, needs.memory_bytes)
                trial[room.worker.id] = left.settle()
                break
        else:
            return False
    return True
