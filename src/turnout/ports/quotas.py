"""The limits of chat per tenant, shared by all gateways."""

from typing import Protocol

from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.tasks import TenantId


class Quotas(Protocol):
    """Each tenant's account of chat requests, tokens and slots, from which gateways take shares ahead of need."""

    async def lease(self, gateway: str, tenant: TenantId, limits: ChatLimits, wish: ShareRequest) -> Grant:
        """As much of the wish as the account holds. Slots lapse unless they are asked for again within seconds;
        one gateway must have no two wishes for one tenant under way."""
        ...
