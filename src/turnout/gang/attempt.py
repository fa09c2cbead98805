"""One attempt at one task by this gang: from the claim to a result, a release, or the loss of the lease.

Rank 0 decides between two steps. Everything that is written carries the attempt's number, so an attempt that
was given away can write nothing; it learns so at the next step and drops the task.

Progress, checkpoints and previews are written beside the steps (`latest_report`): while Redis or the object store is away,
rendering goes on.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar, cast

from turnout.engines import mp4
from turnout.engines.base import CheckpointRefused, EngineError, Frame, RanksLost
from turnout.errors import NotFound, Stale, Unavailable
from turnout.gang.attempt_objects import AttemptObjects
from turnout.gang.cadence_rules import Cadence, StepPace
from turnout.gang.latest_report import LatestReport
from turnout.gang.rank_commands import RankCommander, job_of
from turnout.store.object_store import Blobs
from turnout.tasks import object_keys
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_rules import (
    Checkpointed,
    Event,
    Failed,
    Finished,
    Interrupted,
    LoadedBytes,
    Previewed,
    Progressed,
    Result,
    Stage,
    Task,
    TaskFailure,
)
from turnout.telemetry.log import get_log

T = TypeVar("T")
log = get_log()

_TELL_LOADED_S = 0.5
_RETRY_FOR_S = 600.0  # how long a finished video waits for Redis or the object store to come back
_REPORT_S = 0.2  # how long a step waits for its report, so that a cancelled task is dropped at once
_KEEP_ALIVE_S = 10.0
_RENEWALS = 6  # in one lease; tasks/lease_rules counts on it


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt works with; the same for all attempts of a gang."""

    tasks: TaskLog
    queue: TaskQueue
    blobs: Blobs
    cadence: Cadence
    lease_s: float
    step_timeout_s: float
    engine_thread: Executor  # only this thread may use the engine
    loaded: Callable[[], LoadedBytes | None] = lambda: None  # how far the model's loading is
    deadline_at: float = inf  # by the monotonic clock: a task that is still rendered then fails


@asynccontextmanager
async def _task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    """A task group whose first failure comes out as itself, so that callers can tell Stale from a broken gang."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


class Attempt:
    """`draining` is called between steps; `ranks` is awaited, so that a task may be claimed while the model loads."""

    def __init__(
        self,
        context: AttemptContext,
        task: Task,
        ranks: Awaitable[RankCommander],
        pace: StepPace,
        draining: Callable[[], bool],
    ) -> None:
        self._context = context
        self._task = task
        self._ranks_ready = ranks
        self._ranks: RankCommander | None = None
        self._draining = draining
        self._lost: Stale | None = None
        self._step = 0
        self._moved_at = time.monotonic()
        self._log = log.bind(**task.log_ids)
        self._objects = AttemptObjects(context.blobs, task)
        self._progress = LatestReport("progress", self._apply, self._drop)
        self._checkpoint = LatestReport("checkpoint", self._save_checkpoint, self._drop)
        self._preview = LatestReport("preview", self._save_preview, self._drop)
        self.pace = pace

    async def run(self) -> None:
        """Returns when the attempt is over, whatever came of it; raises when the gang itself is broken."""
        try:
            async with self._reporting():
                await self._render()
        except Stale as stale:
            self._log.info("attempt dropped", reason=str(stale), step=self._step)
        except Unavailable as err:
            # The ranks wait for the next command, so the gang is well; the lease runs out, and blames nobody.
            self._log.error("attempt given up", reason=str(err), step=self._step)
            return
        await self._objects.clean_up(self._find)

    @asynccontextmanager
    async def _reporting(self) -> AsyncGenerator[None]:
        """Renews the lease and writes reports. On the way out nothing is being written any more."""
        async with _task_group() as group:
            reports = (self._progress, self._checkpoint, self._preview)
            jobs = [group.create_task(each.run(), name=f"reports of {self._task.id}") for each in reports]
            jobs.append(group.create_task(self._keep_lease(), name=f"lease of {self._task.id}"))
            try:
                yield
            finally:
                for job in jobs:
                    job.cancel()

    def _drop(self, stale: Stale) -> None:
        self._lost = stale

    def _check_lease(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _render(self) -> None:
        task = self._task
        try:
            ranks = self._ranks = await self._wait_loaded()
            await self._report(Stage.ENCODING, 0)
            self._check_lease()
            await self._restore_or_begin(ranks)
            if not await self._denoise(ranks):
                await self._record(
                    Interrupted(time.time(), task.attempt, "the gang was drained", counts=False)
                )
                self._log.info("attempt drained", step=ranks.rendering.step)
                return
            await self._deliver(ranks)
        except (Stale, asyncio.CancelledError):
            raise
        except EngineError as err:
            self._log.info(
                "task refused", error=str(err)
            )  # by all ranks alike: the gang is ready for the next
            await self._record(Failed(time.time(), task.attempt, TaskFailure("unrenderable", str(err))))
            if isinstance(err, RanksLost):
                raise  # the task has failed, and the next one needs a new gang
        except Unavailable as err:
            await self._record(Interrupted(time.time(), task.attempt, str(err)[:500], counts=False))
        except Exception as err:
            # Other ranks may hang in a collective: tell why, then let the supervisor end the gang.
            self._log.error("attempt broke", error=repr(err))
            await self._record(Interrupted(time.time(), task.attempt, f"{type(err).__name__}: {err}"[:500]))
            raise

    async def _wait_loaded(self) -> RankCommander:
        """Tells how much is loaded while it grows. A task that was cancelled meanwhile is dropped, and loading goes on."""
        loading = asyncio.ensure_future(self._ranks_ready)
        told = self._context.loaded()
        await self._report(Stage.LOADING, 0, told)
        while not loading.done():
            await asyncio.wait({loading}, timeout=_TELL_LOADED_S)
            loaded = self._context.loaded()
            if loaded != told:
                told, self._moved_at = loaded, time.monotonic()
                await self._report(Stage.LOADING, 0, told)
            self._check_lease()
            if self._draining():
                raise Unavailable("the gang was drained while its model loaded")
        return await loading

    async def _restore_or_begin(self, ranks: RankCommander) -> None:
        """Brings all ranks to where the last checkpoint was taken, or to step 0."""
        task, job = self._task, job_of(self._task)
        if task.checkpoint is not None:
            try:
                checkpoint = await self._retry(lambda key=task.checkpoint: self._context.blobs.get(key))
                await self._engine(ranks.resume, job, checkpoint)
                self._log.info("attempt resumed", step=ranks.rendering.step, of=ranks.rendering.of)
                return
            except (NotFound, CheckpointRefused) as err:
                self._log.warning("checkpoint was no use: starting over", error=str(err))
        key = task.spec.image
        image = None if key is None else await self._retry(lambda: self._context.blobs.get(key))
        await self._engine(ranks.begin, job, image)

    async def _denoise(self, ranks: RankCommander) -> bool:
        """All steps, with progress after each; False when the gang was drained on the way (checkpointed)."""
        rendering, cadence = ranks.rendering, self._context.cadence
        saved_step, saved_at = rendering.step, time.monotonic()
        await self._report(Stage.DENOISING, rendering.step)
        while rendering.step < rendering.of:
            self._check_lease()
            if self._draining():
                self._checkpoint.put((await self._engine(rendering.snapshot), rendering.step))
                await self._checkpoint.flush(_RETRY_FOR_S)
                return False
            if time.monotonic() > self._context.deadline_at:
                raise EngineError("it takes longer than the deadline of its gang allows")
            began = time.monotonic()
            await self._engine(ranks.advance)
            self.pace = self.pace.after(time.monotonic() - began)
            step = rendering.step
            await self._report(Stage.DENOISING, step)
            if cadence.checkpoint_due(step, rendering.of, saved_step, time.monotonic() - saved_at):
                self._checkpoint.put((await self._engine(rendering.snapshot), step))
                saved_step, saved_at = step, time.monotonic()
            if cadence.preview_due(step, rendering.of):
                self._preview.put((await self._engine(rendering.preview), step))
        self._check_lease()
        return True

    async def _deliver(self, ranks: RankCommander) -> None:
        task, of = self._task, ranks.rendering.of
        await self._report(Stage.DECODING, of)
        began = time.monotonic()
        frames, video = await self._engine(lambda: mp4.encode_beside(ranks.decode(), task.spec.fps))
        self.pace = replace(self.pace, decode_s=time.monotonic() - began)
        await self._report(Stage.UPLOADING, of)
        result = await self._upload(frames, video)
        await self._record(Finished(time.time(), task.attempt, result))
        self._log.info("video finished", bytes=result.bytes, step_s=self.pace.step_s)

    async def _upload(self, frames: Sequence[Frame], video: bytes) -> Result:
        root = object_keys.of_attempt(self._task)
        thumbnail = await asyncio.to_thread(mp4.thumbnail, frames)
        sheet = await asyncio.to_thread(mp4.spritesheet, frames)
        result = Result(f"{root}video.mp4", f"{root}thumbnail.webp", f"{root}spritesheet.jpg", len(video))
        await self._retry(lambda: self._objects.put(result.video, video, "video/mp4"))
        await self._retry(lambda: self._objects.put(result.thumbnail, thumbnail, "image/webp"))
        await self._retry(lambda: self._objects.put(result.spritesheet, sheet, "image/jpeg"))
        return result

    async def _save_checkpoint(self, saved: tuple[bytes, int]) -> None:
        data, step = saved
        key = object_keys.checkpoint(self._task, step)
        await self._objects.put(key, data, "application/octet-stream")
        await self._apply(Checkpointed(time.time(), self._task.attempt, step, key))
        self._log.info("checkpoint saved", step=step, bytes=len(data))
        await self._objects.keep_checkpoint(key)

    async def _save_preview(self, saved: tuple[bytes, int]) -> None:
        data, step = saved
        key = object_keys.preview(self._task, step)
        await self._objects.put(key, data, "image/webp")
        await self._apply(Previewed(time.time(), self._task.attempt, step, key))
        self._objects.keep(key)

    async def _find(self) -> Task | None:
        try:
            return await self._context.tasks.get(self._task.id)
        except NotFound:
            return None

    async def _report(self, stage: Stage, step: int, loaded: LoadedBytes | None = None) -> None:
        """Progress; while Redis is away only the newest is kept."""
        self._step = step
        of = self._task.spec.steps
        eta_s = self.pace.eta_s(step, of)
        self._progress.put(Progressed(time.time(), self._task.attempt, stage, step, of, eta_s, loaded))
        await self._progress.wait_written(_REPORT_S)

    async def _apply(self, event: Event) -> None:
        """Raises Stale when the task was given away."""
        try:
            await self._context.tasks.apply(self._task.id, event)
        except NotFound as err:
            raise Stale(str(err)) from err

    async def _record(self, event: Event) -> None:
        """Records what must not be lost, waiting for Redis if need be."""

        async def record() -> None:
            try:
                await self._apply(event)
            except Stale:
                # The reply to an earlier try may have been lost after Redis had written it.
                if not isinstance(event, Finished):
                    raise
                task = await self._find()
                if task is None or task.result != event.result:
                    raise

        await self._progress.wait_written(_REPORT_S)
        await self._retry(record)

    async def _retry(self, act: Callable[[], Awaitable[T]]) -> T:
        """Waits for a service that is away, and keeps the gang alive meanwhile: it is well."""
        deadline = time.monotonic() + _RETRY_FOR_S
        wait_s = 0.05
        while True:
            try:
                return await act()
            except Unavailable as err:
                if time.monotonic() > deadline:
                    raise
                self._log.warning("Redis or the object store did not answer, trying again", error=str(err))
                if self._ranks is not None and time.monotonic() - self._moved_at > _KEEP_ALIVE_S:
                    await self._engine(self._ranks.keep_alive)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 1.0)

    async def _engine(self, act: Callable[..., T], *args: object) -> T:
        self._moved_at = time.monotonic()
        outcome = await asyncio.get_running_loop().run_in_executor(self._context.engine_thread, act, *args)
        self._moved_at = time.monotonic()
        return outcome

    async def _keep_lease(self) -> None:
        """Renews while the work moves. A gang that is stuck loses its lease by itself."""
        every_s = self._context.lease_s / _RENEWALS
        while True:
            await asyncio.sleep(every_s)
            if time.monotonic() - self._moved_at > self._context.step_timeout_s:
                self._log.error("lease given up", reason="no step came to an end in time")
                return
            try:
                async with asyncio.timeout(every_s):
                    renewed = await self._context.queue.renew(self._task)
            except (Unavailable, TimeoutError):
                continue  # nobody else can take it over either
            if not renewed:
                self._drop(Stale("the lease is no longer this attempt's"))
                return
