"""Who could leave a machine for a claim, and in which order, in one planning pass. Pure: what it counts does not outlive the
pass."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from turnout.fleet.fleet_rules import Fleet, load_of, stay_s
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId
from turnout.fleet.scale_rules import Claim, Urgency
from turnout.fleet.scaling_rules import leave_order


class Evictions:
    """`used` are replicas that the pass has decided about."""

    def __init__(
        self,
        fleet: Fleet,
        by_worker: Mapping[WorkerId, Sequence[Replica]],
        by_model: Mapping[str, Sequence[Replica]],
        now: float,
    ) -> None:
        self._fleet, self._now = fleet, now
        self._by_worker, self._by_model = by_worker, by_model
        self._evicted: Counter[str] = Counter()
        self._serving: dict[str, tuple[int, int]] = {}
        self.used: set[ReplicaId] = set()

    def count(self, victims: Iterable[Replica]) -> None:
        """These leave."""
        victims = tuple(victims)
        self.used.update(v.id for v in victims)
        self._evicted.update(v.model for v in victims if v.open)

    def _spare(self, model: str) -> tuple[int, int]:
        """How many of the model's replicas may be evicted yet, and how many of those that are ready: all beyond the ones kept
        warm."""
        if model not in self._serving:
            own = [r for r in self._by_model.get(model, ()) if r.open]
            self._serving[model] = len(own), sum(r.phase is Phase.READY for r in own)
        kept = self._fleet.models[model].scaling.min_replicas + self._evicted[model]
        there, ready = self._serving[model]
        return there - kept, ready - kept

    def mature(self, replica: Replica) -> bool:
        """Whether it had its minimum stay."""
        if replica.asleep:
            return True
        ready_at = replica.ready_at if replica.phase is Phase.READY else None
        return ready_at is not None and self._now - ready_at >= stay_s(self._fleet, replica)

    def candidates(self, worker: WorkerId, claim: Claim) -> list[Replica]:
        """Who could leave the machine for the claim, in the order in which they should: of those beyond the ones kept warm. One
        that still loads keeps nobody warm."""
        candidates: list[Replica] = []
        spare: dict[str, tuple[int, int]] = {}
        for replica in self.may_leave(worker, claim):
            if replica.open:
                is_ready = replica.phase is Phase.READY
                left, ready = spare.get(replica.model) or self._spare(replica.model)
                if left <= 0 or (is_ready and ready <= 0):
                    continue
                spare[replica.model] = left - 1, ready - is_ready
            candidates.append(replica)
        return candidates

    def may_leave(self, worker: WorkerId, claim: Claim) -> list[Replica]:
        """The machine's replicas that could leave for the claim if none were kept warm, in that order."""
        ranked: list[tuple[tuple[int, float], ReplicaId, Replica]] = []
        for replica in self._by_worker.get(worker, ()):
            if replica.leaving or replica.id in self.used or replica.model == claim.model:
                continue
            if replica.asleep and replica.busy == 0:
                ranked.append(((0, replica.used_at), replica.id, replica))
                continue
            if not replica.open or replica.model not in self._fleet.models:
                continue
            used = load_of(self._fleet, replica.model) > 0 or replica.busy > 0
            mature = self.mature(replica)
            if claim.urgency is not Urgency.WAITED_FOR and (used or not mature):
                continue
            since = replica.created_at if replica.ready_at is None else replica.ready_at
            ranked.append((leave_order(mature, used, since, replica.used_at), replica.id, replica))
        ranked.sort(key=lambda one: one[:2])
        return [replica for *_, replica in ranked]
