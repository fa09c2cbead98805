"""Tenants' accounts of chat requests, tokens and slots in Redis. One script leases shares and refills the accounts."""

from turnout.adapters.redis import scripts
from turnout.adapters.redis.connection import RedisConnection
from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.tasks import TenantId


class RedisQuotas:
    """Slots that a gateway does not renew within `slots_s` return to the account."""

    def __init__(self, link: RedisConnection, slots_s: float = 10.0) -> None:
        self._link = link
        self._slots_ms = int(slots_s * 1000)

    async def lease(
        self, gateway: str, tenant: TenantId, limits: ChatLimits, request: ShareRequest, number: int = 0
    ) -> Grant:
        return await scripts.lease_share(
            self._link,
            tenant=tenant,
            gateway=gateway,
            limits=limits,
            request=request,
            number=number,
            slots_ms=self._slots_ms,
        )
