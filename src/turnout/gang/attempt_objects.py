"""What one attempt writes to the object store, and what it removes of that again.

An attempt that is over removes what it wrote and nobody was told of. Checkpoints that the task's record names go when the
task has ended, because a successor may need them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from turnout.errors import Unavailable
from turnout.store.object_store import Blobs
from turnout.tasks import object_keys
from turnout.tasks.task_rules import Task
from turnout.telemetry.log import get_log

_UPLOAD_S = 10.0  # for uploads that nobody needs any more; the sweep removes what comes later


class AttemptObjects:
    def __init__(self, blobs: Blobs, task: Task) -> None:
        self._blobs = blobs
        self._task = task
        self._log = get_log().bind(**task.log_ids)
        self._uploads: set[asyncio.Future[None]] = set()
        self._untold: set[str] = set()  # objects that nobody was told of
        self._checkpoints = (
            {task.checkpoint} if task.checkpoint else set[str]()
        )  # the next that is kept replaces them

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        """An upload cannot be stopped half-way: it goes on when this is cancelled."""
        self._untold.add(key)
        put = asyncio.ensure_future(self._blobs.put(key, data, content_type))
        self._uploads.add(put)
        put.add_done_callback(self._uploaded)
        await asyncio.shield(put)
        if object_keys.is_checkpoint(key):
            self._checkpoints.add(key)

    def _uploaded(self, put: "asyncio.Future[None]") -> None:
        self._uploads.discard(put)
        if not put.cancelled():
            put.exception()  # whoever waited for it was told

    def keep(self, key: str) -> None:
        """The task's record names it now."""
        self._untold.discard(key)

    async def keep_checkpoint(self, key: str) -> None:
        """The task's record names it now, instead of the ones before."""
        self.keep(key)
        # By name: an attempt that was stopped right here must not delete what its successor wrote.
        replaced, self._checkpoints = self._checkpoints - {key}, {key}
        self._untold -= replaced
        await self._delete(replaced)

    async def clean_up(self, find: Callable[[], Awaitable[Task | None]]) -> None:
        """`find`: the task's record. What an upload leaves must not come after the removal."""
        if self._uploads:
            await asyncio.wait(self._uploads, timeout=_UPLOAD_S)
        try:
            task = await find()
            # An event whose answer was lost may have been written.
            unneeded = self._untold - (object_keys.told_of(task) if task else set())
            if task is None or task.ended:
                of_task = self._blobs.list(object_keys.of_task(self._task.id))
                unneeded |= {blob.key async for blob in of_task if object_keys.is_checkpoint(blob.key)}
        except Unavailable as err:
            self._log.warning("unneeded objects not deleted", error=str(err))
        else:
            await self._delete(unneeded)

    async def _delete(self, keys: Iterable[str]) -> None:
        """What is left behind when this fails goes with the retention sweep."""
        try:
            await self._blobs.delete(sorted(keys))
        except Unavailable as err:
            self._log.warning("unneeded objects not deleted", error=str(err))
