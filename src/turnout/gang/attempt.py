"""One attempt at one task by this gang: from the claim to a result, a release, or the loss of the lease.

Rank 0 decides between two steps. Everything that is written carries the attempt's number, so an attempt that
was given away can write nothing; it learns so at the next step and drops the task.

Progress, checkpoints and previews are written beside the steps (`latest_report`): while no gateway answers, rendering goes on.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from turnout.engines import mp4
from turnout.engines.base import CheckpointRefused, EngineError, Frame, RanksLost
from turnout.engines.mark import Mark
from turnout.errors import NotFound, Stale, Unavailable, first_in
from turnout.gang.cadence_rules import AttemptPace, Cadence
from turnout.gang.gang_api import GangApi
from turnout.gang.latest_report import LatestReport
from turnout.gang.rank_commands import RankCommander, job_of
from turnout.tasks.gang_messages import (
    CheckpointTold,
    ClaimedTask,
    FailureTold,
    FinishTold,
    GangEvent,
    InterruptionTold,
    PreviewTold,
    ProgressTold,
)
from turnout.tasks.pace_rules import ExpectedTimes
from turnout.tasks.task_rules import LoadedBytes, Stage, State
from turnout.telemetry.log import get_log
from turnout.telemetry.trace_rules import trace_field

T = TypeVar("T")
log = get_log()

_TELL_LOADED_S = 0.5
_RETRY_FOR_S = 600.0  # how long a finished video waits for a gateway to answer
_REPORT_S = 0.2  # how long a step waits for its report, so that a cancelled task is dropped at once
_KEEP_ALIVE_S = 10.0
_RENEWALS = 6  # in one lease; tasks/lease_rules counts on it
_MAX_WORDS = 500


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt works with; the same for all attempts of a gang."""

    api: GangApi
    cadence: Cadence
    step_timeout_s: float
    engine_thread: Executor  # only this thread may use the engine
    loaded: Callable[[], LoadedBytes | None] = lambda: None  # how far the model's loading is
    deadline_at: float = inf  # by the monotonic clock: a task that is still rendered then fails


_TRANSPORT = re.compile(r"gloo|NCCL|by peer|GLHF|process ?group", re.IGNORECASE)


@asynccontextmanager
async def _task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    """A task group whose first failure comes out as itself, so that callers can tell Stale from a broken gang."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise first_in(errors) from None


def _reason(error: Exception) -> str:
    """What the task's owner is told. What torch's transports say of a rank that is gone helps nobody: the log has it."""
    said = f"{type(error).__name__}: {error}"[:_MAX_WORDS]
    return "another rank of the gang ended, or cannot be reached" if _TRANSPORT.search(said) else said


def _pace_of(task: ClaimedTask) -> AttemptPace:
    told = task.expected
    if told is None:
        return AttemptPace(task.spec)
    times = ExpectedTimes(told.encode_s, told.guided_step_s, told.step_s, told.finish_s)
    return AttemptPace(task.spec, times, told.loading_s)


def log_ids(task: ClaimedTask) -> dict[str, str | int]:
    """What log lines on it name."""
    return {"task": task.id, "attempt": task.attempt, **trace_field(task.traceparent)}


class Attempt:
    """`draining` is called between steps; `ranks` is awaited, so that a task may be claimed while the model loads."""

    def __init__(
        self,
        context: AttemptContext,
        task: ClaimedTask,
        ranks: Awaitable[RankCommander],
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
        self._log = log.bind(**log_ids(task))
        self._api = context.api.attempt(task)
        self._progress = LatestReport("progress", self._api.report, self._drop)
        self._checkpoint = LatestReport("checkpoint", self._save_checkpoint, self._drop)
        self._preview = LatestReport("preview", self._save_preview, self._drop)
        self._pace = _pace_of(task)
        self._stage, self._stage_began = Stage.LOADING, time.monotonic()

    async def run(self) -> State | None:
        """Returns when the attempt is over, with the state of its task then: None if it is gone. Raises Unavailable when nobody
        can say, and whatever broke the gang itself."""
        try:
            async with self._reporting():
                await self._render()
        except Stale as stale:
            self._log.info("attempt dropped", reason=str(stale), step=self._step)
        except Unavailable as err:
            # The ranks wait for the next command, so the gang is well; the lease runs out, and blames nobody.
            self._log.error("attempt given up", reason=str(err), step=self._step)
            raise
        try:
            return await self._api.over()
        except Stale:  # the gang has no right any more
            return None

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
        try:
            ranks = self._ranks = await self._wait_loaded()
            await self._report(Stage.ENCODING, 0)
            self._check_lease()
            await self._restore_or_begin(ranks)
            if not await self._denoise(ranks):
                await self._record(InterruptionTold(reason="the gang was drained", counts=False))
                self._log.info("attempt drained", step=ranks.rendering.step)
                return
            await self._deliver(ranks)
        except (Stale, asyncio.CancelledError):
            raise
        except EngineError as err:
            self._log.info(
                "task refused", error=str(err)
            )  # by all ranks alike: the gang is ready for the next
            await self._record(FailureTold(message=str(err)[:_MAX_WORDS]))
            if isinstance(err, RanksLost):
                raise  # the task has failed, and the next one needs a new gang
        except Unavailable as err:
            await self._record(InterruptionTold(reason=str(err)[:_MAX_WORDS], counts=False))
        except Exception as err:
            # Other ranks may hang in a collective: tell why, then let the supervisor end the gang.
            self._log.error("attempt broke", error=repr(err))
            await self._record(InterruptionTold(reason=_reason(err)))
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
        if task.checkpoint:
            try:
                checkpoint = await self._retry(lambda: self._api.get("checkpoint"))
                await self._engine(ranks.resume, job, checkpoint)
                self._log.info("attempt resumed", step=ranks.rendering.step, of=ranks.rendering.of)
                return
            except (NotFound, CheckpointRefused) as err:
                self._log.warning("checkpoint was no use: starting over", error=str(err))
        image = None if task.spec.image is None else await self._retry(lambda: self._api.get("image"))
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
            step = rendering.step
            self._pace = self._pace.after(step, time.monotonic() - began)
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
        mark = None if task.mark is None else Mark(task.mark, task.id)
        frames, video = await self._engine(lambda: mp4.encode_beside(ranks.decode(), task.spec.fps, mark))
        await self._report(Stage.UPLOADING, of)
        await self._upload(frames, video)
        await self._record(FinishTold(bytes=len(video)))
        self._log.info("video finished", bytes=len(video))

    async def _upload(self, frames: Sequence[Frame], video: bytes) -> None:
        thumbnail = await asyncio.to_thread(mp4.thumbnail, frames)
        sheet = await asyncio.to_thread(mp4.spritesheet, frames)
        made = [("video.mp4", video), ("thumbnail.webp", thumbnail), ("spritesheet.jpg", sheet)]
        if len(frames) == 1:
            made.append(("picture.png", await asyncio.to_thread(mp4.picture, frames[0])))
        for name, data in made:
            await self._retry(lambda name=name, data=data: self._api.put(name, data))

    async def _save_checkpoint(self, saved: tuple[bytes, int]) -> None:
        data, step = saved
        await self._api.put(f"checkpoint-{step}.safetensors", data)
        await self._api.report(CheckpointTold(step=step))
        self._log.info("checkpoint saved", step=step, bytes=len(data))

    async def _save_preview(self, saved: tuple[bytes, int]) -> None:
        data, step = saved
        await self._api.put(f"preview-{step}.webp", data)
        await self._api.report(PreviewTold(step=step))

    async def _report(self, stage: Stage, step: int, loaded: LoadedBytes | None = None) -> None:
        """Progress; while no gateway answers only the newest is kept."""
        self._step = step
        of = self._task.spec.steps
        if stage is not self._stage:
            self._stage = stage
            if stage is not Stage.UPLOADING:  # decoding and uploading are one to the estimate
                self._stage_began = time.monotonic()
        eta_s = self._pace.eta_s(stage, step, time.monotonic() - self._stage_began)
        self._progress.put(ProgressTold(stage=stage, step=step, of=of, eta_s=eta_s, loaded=loaded))
        await self._progress.wait_written(_REPORT_S)

    async def _record(self, event: GangEvent) -> None:
        """Records what must not be lost, waiting for a gateway if need be."""
        await self._progress.wait_written(_REPORT_S)
        await self._retry(lambda: self._api.report(event))

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
                self._log.warning("the gateway did not answer, trying again", error=str(err))
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
        every_s = self._task.lease_s / _RENEWALS
        while True:
            # Reports renew it, too.
            await asyncio.sleep(max(every_s / 10, self._api.renewed_at + every_s - time.monotonic()))
            if time.monotonic() - self._api.renewed_at < every_s:
                continue
            if time.monotonic() - self._moved_at > self._context.step_timeout_s:
                self._log.error("lease given up", reason="no step came to an end in time")
                return
            try:
                async with asyncio.timeout(every_s):
                    await self._api.renew()
            except (Unavailable, TimeoutError):
                continue
            except Stale as stale:
                self._drop(stale)
                return
