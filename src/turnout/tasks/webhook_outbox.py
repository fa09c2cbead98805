"""Webhooks to be sent, in Redis: what is due by time, and the number of failed tries of each.

Of a task the outbox has the id alone, because the task is what is told. Other messages lie there as they will be sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, SerializeAsAny

from turnout.errors import Newer, NotFound
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import NewerRecord, RecordKind
from turnout.store.records import number, set_aside, text
from turnout.tasks.delivery_rules import AT_ONCE, next_deliveries
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Task, TaskId, TenantId

_TRIES_TTL_S = 7 * 86_400
_WINDOW = 1000  # of what is due, seen at once
_SKIP_S = 30.0  # how long a whole window of tenants that have enough under way is out of the way of others
_NOBODY = TenantId("")


class WebhookBody(BaseModel):
    """The body of every webhook: what happened, when, and more of it."""

    type: str
    timestamp: str
    data: SerializeAsAny[BaseModel]


def webhook_body(kind: str, at: float, data: BaseModel) -> str:
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    return WebhookBody(type=kind, timestamp=stamp, data=data).model_dump_json()


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
    tenant: TenantId
    of: Task | WebhookMessage
    tries: int


class Outbox:
    """A task with a `webhook_url` enters with the write that ends it."""

    def __init__(self, link: RedisConnection, tasks: TaskLog) -> None:
        self._client = link.client
        self._link = link
        self._tasks = tasks
        self._name = link.keys.outbox()
        self._tenants: dict[str, TenantId] = {}  # of what is due

    async def put(self, message: WebhookMessage, at: float) -> None:
        """One that is there already is left as it is."""
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hsetnx(self._link.keys.webhook_messages(), message.id, WEBHOOK_MESSAGE.dump(message))
            pipe.zadd(self._name, {message.id: int(at * 1000)}, nx=True)
            await pipe.execute()

    async def due(self, now: float, hold_s: float, under_way: Mapping[TenantId, int]) -> list[Delivery]:
        """What is to be sent now beside what is `under_way`; hidden from others for `hold_s`, so that a crash only delays it."""
        async with translated():
            raw = await self._client.zrangebyscore(self._name, "-inf", int(now * 1000), start=0, num=_WINDOW)
        entries = [text(one) for one in raw]
        tenants = await self._tenants_of(entries)
        chosen = next_deliveries([(entry, tenants[entry]) for entry in entries], under_way)
        found: list[Delivery] = []
        for entry in chosen:
            await self._hide([entry], now + hold_s)
            async with translated():
                tries = await self._client.get(self._link.keys.webhook_tries(entry))
            try:
                found.append(Delivery(entry, tenants[entry], await self._find(entry), number(tries)))
            except NotFound:
                await self.done(entry)
            except Newer:
                continue  # it is looked at again after `hold_s`
        if len(entries) == _WINDOW and not chosen and sum(under_way.values()) < AT_ONCE:
            await self._hide(
                entries, now + hold_s
            )  # all are of tenants that have enough under way: others may be behind
        return found

    async def _tenants_of(self, entries: Sequence[str]) -> Mapping[str, TenantId]:
        """Whose each is; nobody's if it is gone. What was asked before is kept while it is due."""
        known = {entry: self._tenants[entry] for entry in entries if entry in self._tenants}
        asked = [entry for entry in entries if entry not in known]
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for entry in asked:
                pipe.hget(self._link.keys.task(TaskId(entry)), "tenant")
                pipe.hget(self._link.keys.webhook_messages(), entry)
            answers: list[bytes | None] = await pipe.execute()
        for entry, of_task, message in zip(asked, answers[::2], answers[1::2], strict=True):
            known[entry] = TenantId(text(of_task)) if of_task else _tenant_of(message)
        self._tenants = known
        return known

    async def _hide(self, entries: Sequence[str], until: float) -> None:
        async with translated():
            await self._client.zadd(self._name, dict.fromkeys(entries, int(until * 1000)), xx=True)

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


def _tenant_of(message: bytes | None) -> TenantId:
    """Nobody's if it cannot be read, which whoever sends it finds out."""
    try:
        return _NOBODY if message is None else WEBHOOK_MESSAGE.load(message).tenant
    except (NewerRecord, ValueError, RecursionError):
        return _NOBODY
