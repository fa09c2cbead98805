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
from turnout.ports import Blobs, Queue, TaskLog

T = TypeVar("T")
log = get_log()

_PATIENCE_S = 600.0  # how long a finished video waits for Redis or the object store to come back


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt works with; the same for all attempts of a gang."""

    tasks: TaskLog
    queue: Queue
    blobs: Blobs
    cadence: Cadence
    lease_s: float
    step_timeout_s: float
    hands: Executor  # the one thread that may touch the engine


@asynccontextmanager
async def _together() -> AsyncGenerator[asyncio.TaskGroup]:
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
    """`draining` is asked between steps; `crew` is awaited, so a claim may come before the model is loaded."""

    def __init__(
        self,
        bench: AttemptContext,
        task: Task,
        crew: Awaitable[RankCommander],
        pace: StepPace,
        draining: Callable[[], bool],
    ) -> None:
        self._bench = bench
        self._task = task
        self._crew_ready = crew
        self._draining = draining
        self._lost = False
        self._step = 0
        self._moved_at = time.monotonic()
        self._log = log.bind(task=task.id, attempt=task.attempt)
        self.pace = pace

    async def run(self) -> None:
        """Returns when the task is done with, one way or another; raises when the gang itself is broken."""
        async with _together() as group:
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
            crew = await self._crew_ready
            await self._report(Stage.ENCODING, 0)
            await self._stand(crew)
            if not await self._denoise(crew):
                await self._surely(
                    Interrupted(time.time(), task.attempt, "the gang was drained", counts=False)
                )
                self._log.info("attempt drained", step=crew.rendering.step)
                return
            await self._deliver(crew)
        except (Stale, asyncio.CancelledError):
            raise
        except EngineError as err:
            self._log.info(
                "task refused", error=str(err)
            )  # by all ranks alike: the gang is ready for the next
            await self._surely(Failed(time.time(), task.attempt, TaskFailure("unrenderable", str(err))))
        except Exception as err:
            # Other ranks may hang in a collective: tell why, then let the supervisor end the gang.
            self._log.error("attempt broke", error=repr(err))
            await self._surely(Interrupted(time.time(), task.attempt, f"{type(err).__name__}: {err}"[:500]))
            raise

    async def _stand(self, crew: RankCommander) -> None:
        """Brings all ranks to where the last checkpoint was taken, or to step 0."""
        task, job = self._task, job_of(self._task)
        if task.checkpoint is not None:
            try:
                checkpoint = await self._patiently(lambda key=task.checkpoint: self._bench.blobs.get(key))
                await self._engine(crew.resume, job, checkpoint)
                self._log.info("attempt resumed", step=crew.rendering.step, of=crew.rendering.of)
                return
            except (NotFound, CheckpointRefused) as err:
                self._log.warning("checkpoint was no use: starting over", error=str(err))
        key = task.spec.image
        image = None if key is None else await self._patiently(lambda: self._bench.blobs.get(key))
        await self._engine(crew.begin, job, image)

    async def _denoise(self, crew: RankCommander) -> bool:
        """All steps, with progress after each; False when the gang was drained on the way (checkpointed)."""
        rendering, cadence = crew.rendering, self._bench.cadence
        saved_step, saved_at = rendering.step, time.monotonic()
        async with _together() as uploads:
            await self._report(Stage.DENOISING, rendering.step)
            while rendering.step < rendering.of:
                if self._lost:
                    raise Stale("the lease is no longer this attempt's")
                if self._draining():
                    await self._save_checkpoint(crew.rendering.snapshot(), rendering.step)
                    return False
                began = time.monotonic()
                await self._engine(crew.advance)
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

    async def _deliver(self, crew: RankCommander) -> None:
        task, of = self._task, crew.rendering.of
        await self._report(Stage.DECODING, of)
        began = time.monotonic()
        frames = await self._engine(crew.decode)
        self.pace = replace(self.pace, decode_s=time.monotonic() - began)
        await self._report(Stage.UPLOADING, of)
        result = await self._upload(frames)
        await self._surely(Finished(time.time(), task.attempt, result))
        self._log.info("video finished", bytes=result.bytes, step_s=self.pace.step_s)
        await self._discard_checkpoints()

    async def _upload(self, frames: Frames) -> Result:
        root = object_keys.of_attempt(self._task.id, self._task.attempt)
        video = await asyncio.to_thread(mp4.encode, frames, self._task.spec.fps)
        thumbnail = await asyncio.to_thread(mp4.thumbnail, frames)
        sheet = await asyncio.to_thread(mp4.spritesheet, frames)
        result = Result(f"{root}video.mp4", f"{root}thumbnail.webp", f"{root}spritesheet.jpg", len(video))
        put = self._bench.blobs.put
        await self._patiently(lambda: put(result.video, video, "video/mp4"))
        await self._patiently(lambda: put(result.thumbnail, thumbnail, "image/webp"))
        await self._patiently(lambda: put(result.spritesheet, sheet, "image/jpeg"))
        return result

    async def _save_checkpoint(self, data: bytes, step: int) -> None:
        key = object_keys.checkpoint(self._task.id, self._task.attempt, step)
        await self._patiently(lambda: self._bench.blobs.put(key, data, "application/octet-stream"))
        task = await self._surely(Checkpointed(time.time(), self._task.attempt, step, key))
        self._log.info("checkpoint saved", step=step, bytes=len(data))
        await self._discard_checkpoints(keep=task.checkpoint)

    async def _save_preview(self, data: bytes, step: int) -> None:
        key = object_keys.preview(self._task.id, self._task.attempt, step)
        await self._patiently(lambda: self._bench.blobs.put(key, data, "image/webp"))
        await self._surely(Previewed(time.time(), self._task.attempt, step, key))

    async def _discard_checkpoints(self, keep: str | None = None) -> None:
        """What is left behind when this fails goes with the retention sweep."""
        try:
            found = [b.key async for b in self._bench.blobs.list(object_keys.of_task(self._task.id))]
            await self._bench.blobs.delete([k for k in found if "/checkpoint-" in k and k != keep])
        except Unavailable as err:
            self._log.warning("checkpoints were left behind", error=str(err))

    async def _report(self, stage: Stage, step: int) -> None:
        """Progress; lost without harm while Redis is away. Raises Stale when the task was given away."""
        self._step = step
        of = self._task.spec.steps
        eta_s = self.pace.eta_s(step, of)
        event = Progressed(time.time(), self._task.attempt, stage, step, of, eta_s)
        try:
            await self._bench.tasks.apply(self._task.id, event)
        except Unavailable as err:
            self._log.warning("progress was not recorded", step=step, error=str(err))
        except NotFound as err:
            raise Stale(str(err)) from err

    async def _surely(self, event: Event) -> Task:
        """Records what must not be lost, waiting for Redis if need be."""

        async def record() -> Task:
            try:
                return await self._bench.tasks.apply(self._task.id, event)
            except NotFound as err:
                raise Stale(str(err)) from err
            except Stale:
                # The reply to an earlier try may have been lost after Redis had written it.
                if isinstance(event, Finished):
                    task = await self._bench.tasks.get(self._task.id)
                    if task.result == event.result:
                        return task
                raise

        return await self._patiently(record)

    async def _patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + _PATIENCE_S
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
        outcome = await asyncio.get_running_loop().run_in_executor(self._bench.hands, act, *args)
        self._moved_at = time.monotonic()
        return outcome

    async def _keep_lease(self) -> None:
        """Renews while the work moves. A gang that is stuck loses its lease by itself."""
        while True:
            await asyncio.sleep(self._bench.lease_s / 4)
            if time.monotonic() - self._moved_at > self._bench.step_timeout_s:
                self._log.error("lease given up", reason="no step came to an end in time")
                return
            try:
                if not await self._bench.queue.renew(self._task):
                    self._lost = True
                    return
            except Unavailable:
                continue  # nobody else can take it over either
