"""Tenants' accounts of chat requests, tokens and permits in Redis. One script leases shares and refills the accounts."""

from turnout.chat import chat_scripts
from turnout.chat.quota_rules import ChatLimits, Grant, ShareRequest
from turnout.store.connection import RedisConnection
from turnout.tasks.task_rules import TenantId


class Quotas:
    """Slots that a gateway does not renew within `slots_s` return to the account."""

    def __init__(self, link: RedisConnection, slots_s: float = 10.0) -> None:
        self._link = link
        self._slots_ms = int(slots_s * 1000)

    async def lease(
        self, gateway: str, tenant: TenantId, limits: ChatLimits, request: ShareRequest, number: int = 0
    ) -> Grant:
        """As much of the request as the account holds. Slots are returned unless they are requested again within seconds.

        A gateway must have only one request for a tenant in flight. If its answer is lost, it is sent again under the same
        `number` (they grow, from 1) and counts once; 0 is never counted as sent before."""
        return await chat_scripts.lease_share(
            self._link,
            tenant=tenant,
            gateway=gateway,
            limits=limits,
            request=request,
            number=number,
            permits_ms=self._slots_ms,
        )
