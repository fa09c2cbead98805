"""One attempt at one task by this gang: from the claim to a result, a release, or the loss of the lease.

Rank 0 decides between two steps. Everything that is written carries the attempt's number, so an attempt that
was given away can write nothing; it learns so at the next step and drops the task.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from turnout.domain import object_keys
from turnout.domain.errors import NotFound, Stale, Unavailable
from turnout.domain.tasks import (
    Checkpointed,
    Event,
    Failed,
    Finished,
    Interrupted,
    Previewed,
    Progressed,
    Result,
    Stage,
    Task,
    TaskFailure,
)
from turnout.engines import mp4
from turnout.engines.base import CheckpointRefused, EngineError, Frames
from turnout.gang.cadence import Cadence, StepPace
from turnout.gang.rank_commands import RankCommander, job_of
from turnout.observe import get_log
from turnout.ports.blobs import Blobs
from turnout.ports.queue import Queue
from turnout.ports.tasks import TaskLog

T = TypeVar("T")
log = get_log()

_RETRY_FOR_S = 600.0  # how long a finished video waits for Redis or the object store to come back


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt works with; the same for all attempts of a gang."""

    tasks: TaskLog
    queue: Queue
    blobs: Blobs
    cadence: Cadence
    lease_s: float
    step_timeout_s: float
    engine_thread: Executor  # only this thread may use the engine


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
        self._draining = draining
        self._lost = False
        self._step = 0
        self._moved_at = time.monotonic()
        self._log = log.bind(task=task.id, attempt=task.attempt)
        self.pace = pace

    async def run(self) -> None:
        """Returns when the attempt is over, whatever came of it; raises when the gang itself is broken."""
        async with _task_group() as group:
            lease = group.create_task(self._keep_lease(), name=f"lease {self._task.id}")
            try:
                await self._render()
            except Stale as stale:
                self._log.info("attempt dropped", reason=str(stale), step=self._step)
                await self._discard_checkpoints()
            finally:
                lease.cancel()

    async def _render(self) -> None:
        task = self._task
        try:
            await self._report(Stage.LOADING, 0)
            ranks = await self._ranks_ready
            await self._report(Stage.ENCODING, 0)
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
        except Exception as err:
            # Other ranks may hang in a collective: tell why, then let the supervisor end the gang.
            self._log.error("attempt broke", error=repr(err))
            await self._record(Interrupted(time.time(), task.attempt, f"{type(err).__name__}: {err}"[:500]))
            raise

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
        async with _task_group() as uploads:
            await self._report(Stage.DENOISING, rendering.step)
            while rendering.step < rendering.of:
                if self._lost:
                    raise Stale("the lease is no longer this attempt's")
                if self._draining():
                    await self._save_checkpoint(ranks.rendering.snapshot(), rendering.step)
                    return False
                began = time.monotonic()
                await self._engine(ranks.advance)
                self.pace = self.pace.after(time.monotonic() - began)
                step = rendering.step
                await self._report(Stage.DENOISING, step)
                if cadence.checkpoint_due(step, rendering.of, saved_step, time.monotonic() - saved_at):
                    data = await self._engine(rendering.snapshot)
                    uploads.create_task(self._save_checkpoint(data, step), name=f"checkpoint {step}")
                    saved_step, saved_at = step, time.monotonic()
                if cadence.preview_due(step, rendering.of):
                    data = await self._engine(rendering.preview)
                    uploads.create_task(self._save_preview(data, step), name=f"preview {step}")
        return True

    async def _deliver(self, ranks: RankCommander) -> None:
        task, of = self._task, ranks.rendering.of
        await self._report(Stage.DECODING, of)
        began = time.monotonic()
        frames = await self._engine(ranks.decode)
        self.pace = replace(self.pace, decode_s=time.monotonic() - began)
        await self._report(Stage.UPLOADING, of)
        result = await self._upload(frames)
        await self._record(Finished(time.time(), task.attempt, result))
        self._log.info("video finished", bytes=result.bytes, step_s=self.pace.step_s)
        await self._discard_checkpoints()

    async def _upload(self, frames: Frames) -> Result:
        root = object_keys.of_attempt(self._task.id, self._task.attempt)
        video = await asyncio.to_thread(mp4.encode, frames, self._task.spec.fps)
        thumbnail = await asyncio.to_thread(mp4.thumbnail, frames)
        sheet = await asyncio.to_thread(mp4.spritesheet, frames)
        result = Result(f"{root}video.mp4", f"{root}thumbnail.webp", f"{root}spritesheet.jpg", len(video))
        put = self._context.blobs.put
        await self._retry(lambda: put(result.video, video, "video/mp4"))
        await self._retry(lambda: put(result.thumbnail, thumbnail, "image/webp"))
        await self._retry(lambda: put(result.spritesheet, sheet, "image/jpeg"))
        return result

    async def _save_checkpoint(self, data: bytes, step: int) -> None:
        key = object_keys.checkpoint(self._task.id, self._task.attempt, step)
        await self._retry(lambda: self._context.blobs.put(key, data, "application/octet-stream"))
        task = await self._record(Checkpointed(time.time(), self._task.attempt, step, key))
        self._log.info("checkpoint saved", step=step, bytes=len(data))
        await self._discard_checkpoints(keep=task.checkpoint)

    async def _save_preview(self, data: bytes, step: int) -> None:
        key = object_keys.preview(self._task.id, self._task.attempt, step)
        await self._retry(lambda: self._context.blobs.put(key, data, "image/webp"))
        await self._record(Previewed(time.time(), self._task.attempt, step, key))

    async def _discard_checkpoints(self, keep: str | None = None) -> None:
        """What is left behind when this fails goes with the retention sweep."""
        try:
            found = [b.key async for b in self._context.blobs.list(object_keys.of_task(self._task.id))]
            await self._context.blobs.delete([k for k in found if "/checkpoint-" in k and k != keep])
        except Unavailable as err:
            self._log.warning("checkpoints were left behind", error=str(err))

    async def _report(self, stage: Stage, step: int) -> None:
        """Progress; lost without harm while Redis is away. Raises Stale when the task was given away."""
        self._step = step
        of = self._task.spec.steps
        eta_s = self.pace.eta_s(step, of)
        event = Progressed(time.time(), self._task.attempt, stage, step, of, eta_s)
        try:
            await self._context.tasks.apply(self._task.id, event)
        except Unavailable as err:
            self._log.warning("progress was not recorded", step=step, error=str(err))
        except NotFound as err:
            raise Stale(str(err)) from err

    async def _record(self, event: Event) -> Task:
        """Records what must not be lost, waiting for Redis if need be."""

        async def record() -> Task:
            try:
                return await self._context.tasks.apply(self._task.id, event)
            except NotFound as err:
                raise Stale(str(err)) from err
            except Stale:
                # The reply to an earlier try may have been lost after Redis had written it.
                if isinstance(event, Finished):
                    task = await self._context.tasks.get(self._task.id)
                    if task.result == event.result:
                        return task
                raise

        return await self._retry(record)

    async def _retry(self, act: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + _RETRY_FOR_S
        wait_s = 0.05
        while True:
            try:
                return await act()
            except Unavailable as err:
                if time.monotonic() > deadline:
                    raise
                self._log.warning("waiting for a service", error=str(err))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 1.0)

    async def _engine(self, act: Callable[..., T], *args: object) -> T:
        self._moved_at = time.monotonic()
        outcome = await asyncio.get_running_loop().run_in_executor(self._context.engine_thread, act, *args)
        self._moved_at = time.monotonic()
        return outcome

    async def _keep_lease(self) -> None:
        """Renews while the work moves. A gang that is stuck loses its lease by itself."""
        while True:
            await asyncio.sleep(self._context.lease_s / 4)
            if time.monotonic() - self._moved_at > self._context.step_timeout_s:
                self._log.error("lease given up", reason="no step came to an end in time")
                return
            try:
                if not await self._context.queue.renew(self._task):
                    self._lost = True
                    return
            except Unavailable:
                continue  # nobody else can take it over either
