"""Tenants' accounts of chat requests, tokens and slots in Redis: one script lends, takes back and counts time."""

from turnout.adapters.redis.connection import RedisConnection
from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.tasks import TenantId


class RedisQuotas:
    """Slots that a gateway does not renew within `slots_s` are free again."""

    def __init__(self, link: RedisConnection, slots_s: float = 10.0) -> None:
        self._link = link
        self._slots_ms = int(slots_s * 1000)

    async def lease(self, gateway: str, tenant: TenantId, limits: ChatLimits, wish: ShareRequest) -> Grant:
        requests, tokens, slots, left_requests, left_tokens = await self._link.run(
            "lease",
            tenant,
            gateway,
            limits.requests_per_minute,
            limits.tokens_per_minute,
            limits.concurrency,
            wish.requests,
            wish.tokens,
            wish.debt,
            wish.slots,
            self._slots_ms,
        )
        return Grant(requests, tokens, slots, float(left_requests), float(left_tokens))
