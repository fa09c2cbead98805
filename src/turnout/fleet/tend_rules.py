"""What each replica's own state asks for, whatever its model needs: failures, time-outs, closing, leaving. Pure."""

from collections.abc import Iterator

from turnout.fleet.events_and_commands import Blame, Close, Command, ForgetReplica, GiveUp, SetWant, TakeUp
from turnout.fleet.fleet_rules import Fleet, same_engine
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import Phase, Replica, Want
from turnout.fleet.worker_rules import Standing, Worker


def tend(fleet: Fleet, now: float) -> list[Command]:
    commands: list[Command] = []
    failed: dict[str, tuple[Replica, str]] = {}
    changing: set[str] = set()  # models of which a replica comes or goes: the next outdated one waits
    outdated: list[Replica] = []
    for replica in fleet.replicas.values():
        worker = fleet.workers.get(replica.worker)
        if worker is None or worker.standing is Standing.GONE:
            commands.append(ForgetReplica(replica.id, "its worker is gone"))
            continue
        model = fleet.models.get(replica.model)
        if (  # nearly all of them, nearly always
            replica.phase is Phase.READY
            and replica.want is Want.READY
            and replica.closing is None
            and replica.spec is model
            and not worker.draining
        ):
            continue
        if replica.coming or replica.leaving:
            changing.add(replica.model)
        if (problem := _problem(replica, worker, now)) is not None:
            failed[replica.model] = (replica, problem)
            commands.append(SetWant(replica.id, Want.GONE, problem))
            continue
        if model is not None and not same_engine(replica.spec, model) and replica.want is not Want.GONE:
            outdated.append(replica)
        commands.extend(_own_course(replica, worker, model, fleet, now))
    for model_name, (replica, problem) in failed.items():
        if model_name in fleet.models:
            commands.extend(_blame(fleet, replica, problem, now))
    for replica in outdated:
        if replica.model not in changing:
            changing.add(replica.model)
            commands.append(leave(replica, "the model was changed"))
    for model_name, given_up in fleet.given_up.items():
        if given_up.until is not None and now >= given_up.until:
            commands.append(TakeUp(model_name))
    return commands


def leave(replica: Replica, reason: str, then: Want = Want.GONE, room_for: str | None = None) -> Command:
    """Lets it go: one that is ready or busy is closed first, so that no request is under way when it is stopped."""
    if replica.phase is Phase.READY or replica.busy:
        return Close(replica.id, then, reason, room_for)
    return SetWant(replica.id, Want.GONE, reason)


def _problem(replica: Replica, worker: Worker, now: float) -> str | None:
    """Why the replica has failed. What its worker did, or cannot tell, is no fault of the model's."""
    if replica.want is Want.GONE or worker.leaving or worker.standing is not Standing.ALIVE:
        return None
    if replica.phase is Phase.FAILED:
        return replica.detail or "it failed"
    limit_s = replica.spec.scaling.load_timeout_s
    if replica.coming and now - replica.phase_since >= limit_s:
        return f"it was not ready after {limit_s:g} s"
    return None


def _own_course(
    replica: Replica, worker: Worker, model: Model | None, fleet: Fleet, now: float
) -> Iterator[Command]:
    rules = fleet.rules
    closing = replica.closing
    if replica.want is Want.GONE:
        if replica.phase is Phase.FAILED and now - replica.phase_since >= rules.forget_failed_s:
            yield ForgetReplica(replica.id, "it failed")
        return
    if closing is not None and closing.then is not replica.want:
        idle = replica.busy == 0 and worker.heard_at >= closing.since + rules.settle_s
        if replica.phase is not Phase.READY and replica.busy == 0:
            yield SetWant(replica.id, Want.GONE, closing.reason)
        elif idle:
            stays = model is not None and not worker.draining
            yield SetWant(replica.id, closing.then if stays else Want.GONE, closing.reason)
        return
    if model is None:
        yield leave(replica, "the model was removed")
    elif worker.draining:
        yield leave(replica, "its worker drains")
    elif replica.phase is Phase.STOPPING and replica.busy == 0:
        yield SetWant(replica.id, Want.GONE, "its worker stops it")
    elif replica.want is Want.ASLEEP and replica.busy == 0:
        if replica.asleep and now - replica.phase_since >= model.scaling.asleep_s:
            yield SetWant(replica.id, Want.GONE, f"asleep for {model.scaling.asleep_s:g} s")
        elif not replica.asleep and now - replica.ordered_at >= rules.sleep_timeout_s:
            yield SetWant(replica.id, Want.GONE, f"it did not fall asleep in {rules.sleep_timeout_s:g} s")


def _blame(fleet: Fleet, replica: Replica, problem: str, now: float) -> Iterator[Command]:
    """One failure of a model, however many of its replicas failed at once."""
    rules = fleet.rules
    before = fleet.failures.get(replica.model)
    healthy = replica.ready_at is not None and replica.phase_since - replica.ready_at >= rules.healthy_s
    count = 1 if before is None or healthy else before.count + 1
    # What served and died is replaced at once, the first time: a kill is no reason to keep users waiting.
    retry_at = now if count == 1 and replica.ready_at is not None else now + rules.backoff(count)
    yield Blame(replica.model, count, problem, retry_at)
    if count >= rules.max_failures:
        yield GiveUp(replica.model, f"it failed {count} times in a row; the last time: {problem}", retry_at)
