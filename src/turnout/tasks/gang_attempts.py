"""What the calls of a gang do to the queue, the task that it holds, and that task's objects. The gateway's clock counts, and
the gateway names all objects: a gang can neither back-date its work nor name what is another's."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.errors import NotFound, Stale
from turnout.stores import Stores
from turnout.tasks import object_keys
from turnout.tasks.arrivals import Arrivals
from turnout.tasks.content_check import ContentCheck
from turnout.tasks.gang_access import GangAccess
from turnout.tasks.gang_messages import (
    CheckpointTold,
    ClaimedTask,
    Claiming,
    ExpectedTold,
    FailureTold,
    FinishTold,
    GangEvent,
    InterruptionTold,
    PreviewTold,
    ProgressTold,
    ReportAnswer,
)
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import (
    Checkpointed,
    Event,
    Failed,
    Finished,
    Interrupted,
    Limits,
    Previewed,
    Progressed,
    Result,
    State,
    Task,
    TaskFailure,
)
from turnout.telemetry.log import get_log

log = get_log()

_LOADING_LOOK_S = 0.2
_REFUSED_LOOK_S = 1.0
_GONE = "the gang that claimed it was gone"
_STARTED_AGAIN = "the gang was started again"


@dataclass(frozen=True, slots=True)
class ClaimParts:
    """What claims at a gateway share."""

    access: GangAccess
    arrivals: Arrivals
    limits: Limits


async def wait_claim(
    stores: Stores,
    parts: ClaimParts,
    right: GangRight,
    *,
    asked: Claiming,
    gone: "asyncio.Future[None]",
) -> Task | None:
    """The next task for the gang, as soon as there is one; None after `wait_s`. A gang that asks holds nothing that it knows of:
    a task that the same process claimed before, and whose answer was lost, is told again; what an earlier process of the gang
    held waits again. `gone` is done when nobody listens."""
    queue, loading, deadline = stores.queue, asked.loading, time.monotonic() + asked.wait_s
    call = f"{asked.process}:{secrets.token_hex(8)}"
    before = await queue.begin_claims(right.gang, call)
    held = await queue.held_by(right.model, right.gang)
    if held is not None and before.partition(":")[0] == asked.process:
        return held
    if held is not None:
        await queue.release(right.model, right.gang, _STARTED_AGAIN)
    with parts.arrivals.waiting(right.model) as claim:
        gone.add_done_callback(lambda _: claim.tell())
        while not gone.done():
            claim.look()
            found = None
            if may := await parts.access.may_claim(right):
                found = await queue.try_claim(
                    right.model, right.gang, parts.limits, loading=loading, call=call
                )
            if isinstance(found, Task) and not gone.done():
                parts.arrivals.tell(right.model)  # there may be more
                return found
            if isinstance(found, Task):
                await queue.release(right.model, right.gang, _GONE, counts=False)
            left_s = deadline - time.monotonic()
            if left_s <= 0 or parts.arrivals.stopping:
                return None
            if found is None and may:
                await claim.wait(left_s)
            else:
                parts.arrivals.pass_over(right.model, claim)
                await asyncio.sleep(min(left_s, _LOADING_LOOK_S if loading else _REFUSED_LOOK_S))
    return None


def told(
    task: Task, token: str, lease_s: float, expected: ExpectedTold | None, mark: str | None = None
) -> ClaimedTask:
    """What a gang is told of its task: nothing of whose it is."""
    return ClaimedTask(
        id=task.id,
        attempt=task.attempt,
        token=token,
        spec=task.spec,
        lease_s=lease_s,
        checkpoint=task.checkpoint is not None,
        traceparent=task.traceparent,
        expected=expected,
        mark=mark,
    )


async def hear(
    stores: Stores, check: ContentCheck | None, right: GangRight, events: Sequence[GangEvent]
) -> tuple[ReportAnswer, list[str]]:
    """Renews the lease and writes the events; the objects that are of no more use then are returned. Where results are checked,
    nothing is shown before that."""
    assert right.task is not None
    replaced: list[str] = []
    try:
        task = await stores.tasks.get(right.task)
        if task.attempt != right.attempt or task.gang != right.gang:
            raise _stale(task, right, events)
        if not await stores.queue.renew(right.task, right.gang, right.attempt):
            raise Stale("The lease is no longer this attempt's.")
        for said in events:
            before = task.checkpoint
            if isinstance(said, PreviewTold) and check is not None and check.sees_results:
                continue
            task = await stores.tasks.apply(right.task, await _checked(check, task, _event(task, said)))
            if isinstance(said, CheckpointTold) and before is not None and before != task.checkpoint:
                replaced.append(before)
    except _AlreadyWritten:
        return ReportAnswer(), replaced
    except (Stale, NotFound) as err:
        return ReportAnswer(stale=err.message), replaced
    return ReportAnswer(), replaced


async def _checked(check: ContentCheck | None, task: Task, event: Event) -> Event:
    """A result that is refused ends the task as a failure."""
    if check is None or not isinstance(event, Finished):
        return event
    failure = await check.failure_of(task, event.result)
    return event if failure is None else Failed(event.at, event.attempt, failure)


class _AlreadyWritten(Exception):
    """The answer to an earlier try was lost after it had been written."""


def _stale(task: Task, right: GangRight, events: Sequence[GangEvent]) -> Exception:
    last = events[-1] if events else None
    if isinstance(last, FinishTold) and task.result == _result(task, right, last.bytes):
        return _AlreadyWritten()
    return Stale(f"{task.id} is {task.state}, attempt {task.attempt}: no longer this attempt's.")


def _event(task: Task, said: GangEvent) -> Event:
    now, attempt = time.time(), task.attempt
    match said:
        case ProgressTold():
            return Progressed(now, attempt, said.stage, said.step, said.of, said.eta_s, said.loaded)
        case PreviewTold():
            return Previewed(now, attempt, said.step, object_keys.preview(task, said.step))
        case CheckpointTold():
            return Checkpointed(now, attempt, said.step, object_keys.checkpoint(task, said.step))
        case InterruptionTold():
            return Interrupted(now, attempt, said.reason, said.counts)
        case FinishTold():
            return Finished(now, attempt, _result(task, None, said.bytes))
        case FailureTold():
            return Failed(now, attempt, TaskFailure("unrenderable", said.message, {"reason": said.message}))


def _result(task: Task, right: GangRight | None, size: int) -> Result:
    root = object_keys.of_attempt(task) if right is None else folder(right)
    picture = f"{root}picture.png" if task.spec.frames == 1 else None
    return Result(f"{root}video.mp4", f"{root}thumbnail.webp", f"{root}spritesheet.jpg", size, picture)


def folder(right: GangRight) -> str:
    """Where an attempt's objects lie."""
    assert right.task is not None
    return object_keys.of_attempt_by(right.task, right.attempt, right.gang)


async def end_attempt(stores: Stores, right: GangRight) -> State | None:
    """The attempt is over and nothing is being uploaded any more: removes what it wrote and nobody was told of, and all
    checkpoints once the task has ended. A successor may need the one that the task's record names."""
    assert right.task is not None
    try:
        task = await stores.tasks.get(right.task)
    except NotFound:
        task = None
    needed = object_keys.told_of(task) if task else set[str]()
    unneeded = [blob.key async for blob in stores.blobs.list(folder(right)) if blob.key not in needed]
    if task is None or task.ended:
        of_task = stores.blobs.list(object_keys.of_task(right.task))
        unneeded += [blob.key async for blob in of_task if object_keys.is_checkpoint(blob.key)]
    await stores.blobs.delete(sorted(set(unneeded)))
    return task.state if task else None


async def put_back(stores: Stores, right: GangRight, reason: str, *, counts: bool) -> None:
    """What the gang holds waits again, and claims of it that are still held open get nothing."""
    await stores.queue.begin_claims(right.gang, "")
    for task in await stores.queue.release(right.model, right.gang, reason, counts=counts):
        log.warning("task put back", **task.log_ids, gang=right.gang, state=task.state, reason=reason)


async def forget_gang(stores: Stores, right: GangRight) -> None:
    await put_back(stores, right, "the gang has left", counts=False)
    await stores.queue.leave(right.model, right.gang)
    await stores.fleet.gangs.remove(right.gang)
