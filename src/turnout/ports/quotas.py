"""The limits of chat per tenant, shared by all gateways."""

from typing import Protocol

from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.tasks import TenantId


class Quotas(Protocol):
    """Each tenant's account of chat requests, tokens and slots, from which gateways take shares ahead of need."""

    async def lease(
        self, gateway: str, tenant: TenantId, limits: ChatLimits, request: ShareRequest, number: int = 0
    ) -> Grant:
        """As much of the request as the account holds. Slots are returned unless they are requested again within seconds.

        A gateway must have only one request for a tenant in flight. If its answer is lost, it is sent again under the same
        `number` (they grow, from 1) and counts once; 0 is never counted as sent before."""
        ...
