"""The events of tasks in Redis: a stream for each task, and one for all that gateways tail."""

import asyncio
from collections.abc import AsyncIterator

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import read_all, read_one, text
from turnout.tasks.task_records import EVENT
from turnout.tasks.task_rules import Recorded, TaskId, TenantId

_TAIL_BLOCK_MS = 2_000
_PAGE = 500
_GATHER_S = 0.004
"""Events that come closer together than this are read together: a read costs more than an event."""


class TaskEvents:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def history(self, task_id: TaskId, after: str = "0") -> list[Recorded]:
        """The task's events with ids after `after`, oldest first."""
        async with translated():
            entries = await self._link.client.xrange(self._link.keys.task_events(task_id), min=f"({after}")
            tenant = await self._link.client.hget(self._link.keys.task(task_id), "tenant")
        owner = TenantId(text(tenant) if tenant else "")
        docs = {entry.decode(): fields.get(b"e") for entry, fields in entries}
        events = await read_all(self._link, EVENT, docs, called=f"event of {task_id}")
        return [Recorded(entry, "", task_id, owner, event) for entry, event in events.items()]

    async def newest(self) -> str:
        """The cursor of the newest event of all; "" if there is none."""
        async with translated():
            newest = await self._link.client.xrevrange(self._link.keys.all_events(), count=1)
        return newest[0][0].decode() if newest else ""

    async def page(self, tenant: TenantId, after: str, upto: str) -> tuple[list[Recorded], str | None]:
        """Some of a tenant's events with cursors after `after` and no further than `upto`, oldest first; and the cursor to go on
        from, None at the end. Nobody waits for what comes."""
        async with translated():
            entries = await self._link.client.xrange(
                self._link.keys.all_events(), min=f"({after}", max=upto, count=_PAGE
            )
        own = {str(e, "ascii"): fields for e, fields in entries if fields.get(b"n") == tenant.encode()}
        docs = {cursor: fields.get(b"e") for cursor, fields in own.items()}
        events = await read_all(self._link, EVENT, docs)
        found = list[Recorded]()
        for cursor, event in events.items():
            own_id, task = (text(own[cursor].get(name, b"")) for name in (b"i", b"t"))
            if own_id and task:
                found.append(Recorded(own_id, cursor, TaskId(task), tenant, event))
        return found, str(entries[-1][0], "ascii") if len(entries) == _PAGE else None

    async def tail(self, after: str | None = None) -> AsyncIterator[Recorded]:
        """All tasks' events with cursors after `after` (None: from now on), for ever, in order."""
        loop, stream = asyncio.get_running_loop(), self._link.keys.all_events()
        cursor = after
        if cursor is None:
            cursor = await self.newest() or "0"
        options = ("COUNT", 500, "BLOCK", _TAIL_BLOCK_MS, "STREAMS", stream)
        while True:
            asked = loop.time()
            async with translated():
                read = await self._link.client.execute_command("XREAD", *options, cursor)
            for _, entries in read:
                for entry, fields in entries:
                    cursor = str(entry, "ascii")
                    event = await read_one(self._link, EVENT, cursor, fields.get(b"e"))
                    own_id, task, tenant = (text(fields.get(name, b"")) for name in (b"i", b"t", b"n"))
                    if event is not None and own_id and task:
                        yield Recorded(own_id, cursor, TaskId(task), TenantId(tenant), event)
            if loop.time() - asked < _GATHER_S:
                await asyncio.sleep(_GATHER_S)
