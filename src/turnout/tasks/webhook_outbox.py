"""Webhooks to be sent, in Redis: what is due by time, and the number of failed tries of each.

Of a task the outbox has the id alone, because the task is what is told. Other messages lie there as they will be sent.
"""

from dataclasses import dataclass

from turnout.errors import Newer, NotFound
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import NewerRecord, RecordKind
from turnout.store.records import number, set_aside, text
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Task, TaskId, TenantId

_TRIES_TTL_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """`id` is the `webhook-id`; it and the body are the same at every try."""

    id: str
    tenant: TenantId
    url: str
    body: str


WEBHOOK_MESSAGE = RecordKind[WebhookMessage]("webhook message", WebhookMessage)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that is due, and how many tries failed before. `of` is the task as it ended, or a message of something else."""

    entry: str
    of: Task | WebhookMessage
    tries: int


class Outbox:
    """A task with a `webhook_url` enters with the write that ends it."""

    def __init__(self, link: RedisConnection, tasks: TaskLog) -> None:
        self._client = link.client
        self._link = link
        self._tasks = tasks
        self._name = link.keys.outbox()

    async def put(self, message: WebhookMessage, at: float) -> None:
        """One that is there already is left as it is."""
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hsetnx(self._link.keys.webhook_messages(), message.id, WEBHOOK_MESSAGE.dump(message))
            pipe.zadd(self._name, {message.id: int(at * 1000)}, nx=True)
            await pipe.execute()

    async def due(self, now: float, hold_s: float, limit: int) -> list[Delivery]:
        """What is due; hidden from others for `hold_s`, so that a crash only delays it."""
        async with translated():
            entries = await self._client.zrangebyscore(
                self._name, "-inf", int(now * 1000), start=0, num=limit
            )
        found: list[Delivery] = []
        for raw in entries:
            entry = text(raw)
            async with translated():
                await self._client.zadd(self._name, {entry: int((now + hold_s) * 1000)}, xx=True)
                tries = await self._client.get(self._link.keys.webhook_tries(entry))
            try:
                found.append(Delivery(entry, await self._find(entry), number(tries)))
            except NotFound:
                await self.done(entry)
            except Newer:
                continue  # it is looked at again after `hold_s`
        return found

    async def _find(self, entry: str) -> Task | WebhookMessage:
        """Raises NotFound, and Newer for a record of a newer version."""
        async with translated():
            data = await self._client.hget(self._link.keys.webhook_messages(), entry)
        if data is None:
            return await self._tasks.get(TaskId(entry))
        try:
            return WEBHOOK_MESSAGE.load(data)
        except NewerRecord as err:
            raise Newer(f"The webhook {entry} was written by a newer version.") from err
        except (ValueError, RecursionError) as err:
            await set_aside(self._link, WEBHOOK_MESSAGE.name, entry, data, err)
            raise NotFound(f"The webhook {entry} cannot be read.") from err

    async def done(self, entry: str) -> None:
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.zrem(self._name, entry)
            pipe.hdel(self._link.keys.webhook_messages(), entry)
            pipe.delete(self._link.keys.webhook_tries(entry))
            await pipe.execute()

    async def count(self, outcome: str) -> None:
        """Counts a try, for the metrics."""
        async with translated():
            await self._client.hincrby(self._link.keys.decision_counts(), f"webhook:{outcome}", 1)

    async def again(self, entry: str, at: float) -> None:
        async with translated():
            tries = self._link.keys.webhook_tries(entry)
            failed = number(await self._client.get(tries)) + 1
            await self._client.set(tries, failed, ex=_TRIES_TTL_S)
            await self._client.zadd(self._name, {entry: int(at * 1000)}, xx=True)
