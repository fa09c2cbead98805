"""Tells whoever runs the service what happened: acts of the audit log that they want to hear of, models that cannot be served, budgets.

What happened since the last look is one message, so nobody can flood a group. Where the look was is kept in Redis; a manager that
dies in between repeats one message at most. The messages wait in the outbox with all other webhooks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from turnout.fleet.fleet_store import FleetStatus
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_one
from turnout.tasks.task_rules import TenantId
from turnout.tasks.webhook_outbox import Outbox, WebhookMessage, webhook_body
from turnout.tenants.audit_log import AuditLog
from turnout.tenants.audit_rules import NOTICED, AuditEntry, NoticeGroup

OPERATORS = TenantId("@operators")
"""Whose the messages are: a name that no tenant can have."""
_FIELD = "notices"  # of the manager's own hash
_MOST = 20  # told one by one
_LOOK_ENTRIES = 500
_REMIND_S = 3600.0
_MAX_REASON_CHARS = 200


class NoticedEvent(BaseModel):
    action: str
    target: str
    reason: str = ""


class NoticeTold(BaseModel):
    """`more` happened besides the `events`."""

    events: list[NoticedEvent]
    more: int


@dataclass(frozen=True, slots=True)
class NoticePlace:
    """Up to which entry of the audit log all was told, and when it was told of a model that it cannot be served."""

    cursor: str = ""
    told: Mapping[str, float] = field(default_factory=dict[str, float])


NOTICE_PLACE = RecordKind[NoticePlace]("notices", NoticePlace)


@dataclass(frozen=True, slots=True)
class NoticePost:
    """Puts a message for each of the operators' URLs into the outbox."""

    urls: Sequence[str]
    outbox: Outbox
    now: Callable[[], float]

    async def put(self, name: str, body: str) -> None:
        for number, url in enumerate(self.urls):
            message = WebhookMessage(f"{name}_operators_{number}", OPERATORS, url, body)
            await self.outbox.put(message, self.now())


@dataclass(frozen=True, slots=True)
class Notices:
    post: NoticePost
    groups: frozenset[NoticeGroup]
    link: RedisConnection
    audit: AuditLog
    fleet: FleetStatus

    async def look(self) -> None:
        """What happened before the first look is told to nobody."""
        if not self.post.urls:
            return
        now = self.post.now()
        place = await self._place(now)
        entries: Sequence[tuple[str, AuditEntry]] = (
            await self.audit.after(place.cursor, _LOOK_ENTRIES) if place.cursor else ()
        )
        wanted = {action for group in self.groups for action in NOTICED[group]}
        events = [NoticedEvent(action=e.action, target=e.target) for _, e in entries if e.action in wanted]
        failed = await self._failed(place.told)
        events = [*failed, *events]
        last = entries[-1][0] if entries else place.cursor or await self.audit.last_id()
        if events:
            data = NoticeTold(events=events[:_MOST], more=max(0, len(events) - _MOST))
            await self.post.put(f"evt_notice_{last}_{int(now)}", webhook_body("notice", now, data))
        await self._keep(NoticePlace(last, {**place.told, **{one.target: now for one in failed}}))

    async def _failed(self, told: Mapping[str, float]) -> list[NoticedEvent]:
        """Models that were started in vain. One that waits for a machine is no news: machines come and go."""
        if NoticeGroup.MODELS not in self.groups:
            return []
        return [
            NoticedEvent(action="model.failed", target=model, reason=why.reason[:_MAX_REASON_CHARS])
            for model, why in sorted((await self.fleet.given_up()).items())
            if why.until is not None and model not in told
        ]

    async def _place(self, now: float) -> NoticePlace:
        async with translated():
            found = await self.link.client.hget(self.link.keys.manager(), _FIELD)
        place = await read_one(self.link, NOTICE_PLACE, _FIELD, found, called="manager") or NoticePlace()
        return replace(place, told={m: at for m, at in place.told.items() if at > now - _REMIND_S})

    async def _keep(self, place: NoticePlace) -> None:
        async with translated():
            await self.link.client.hset(self.link.keys.manager(), _FIELD, NOTICE_PLACE.dump(place))
