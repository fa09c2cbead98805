"""The limits of chat per tenant, shared by all gateways."""

from typing import Protocol

from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.tasks import TenantId


class Quotas(Protocol):
    """Each tenant's account of chat requests, tokens and slots, from which gateways take shares ahead of need."""

    async def lease(self, gateway: str, tenant: TenantId, limits: ChatLimits, request: ShareRequest) -> Grant:
        """As much of the request as the account holds. Slots are returned unless they are requested again within seconds.

        A gateway must have only one request for a tenant in flight."""
        ...
