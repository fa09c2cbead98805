"""The script that leases shares of tenants' accounts."""

from turnout.chat.quota_rules import ChatLimits, Grant, ShareRequest
from turnout.store.connection import RedisConnection
from turnout.store.scripts import Script
from turnout.tasks.task_rules import TenantId

_lease_share = Script("chat/lease_share")


async def lease_share(
    link: RedisConnection,
    *,
    tenant: TenantId,
    gateway: str,
    limits: ChatLimits,
    request: ShareRequest,
    number: int,
    permits_ms: int,
) -> Grant:
    """As much of the request as the tenant's account holds; a request whose number came before gets the same again."""
    requests, tokens, permits, left_requests, left_tokens = await _lease_share.run(
        link,
        tenant=tenant,
        gateway=gateway,
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrency=limits.concurrency,
        requests=request.requests,
        tokens=request.tokens,
        debt_requests=request.lent_requests,
        debt_tokens=request.debt + request.lent_tokens,
        number=number,
        wanted_permits=request.permits,
        permits_ms=permits_ms,
    )
    return Grant(requests, tokens, permits, float(left_requests), float(left_tokens))


_change_conversation = Script("chat/change_conversation", "people/staying")


async def change_conversation(
    link: RedisConnection,
    *,
    owner: str,
    id: str,
    revision: int,
    doc: bytes,
    most: int,
    bytes: int,
    together: int,
) -> int:
    """1, 0 if another revision than `revision` is stored, -1 where there are as many as may be, -2 where they are as large (its
    own `bytes` and those of all others are more than `together`), or -3 where their owner is gone. With 0 `bytes` it is as large as it was."""
    return int(
        await _change_conversation.promise(
            link, owner=owner, id=id, revision=revision, doc=doc, most=most, bytes=bytes, together=together
        )
    )


_remove_conversation = Script("chat/remove_conversation")


async def remove_conversation(link: RedisConnection, *, owner: str, id: str) -> bytes | None:
    """What was stored of it when it went; None if it was not there."""
    return await _remove_conversation.run(link, owner=owner, id=id)
