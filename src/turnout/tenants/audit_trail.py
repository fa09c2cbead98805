"""Records who did what to keys, models and workers: one entry in the audit log and one line in this process's log.

An entry is written before the act, so that nothing is done without one. If the act then fails, the entry stands for what
was asked.
"""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.telemetry.log import get_log
from turnout.tenants.allowance_rules import A_GUESTS_WAYS_IN, A_WORKER_KEYS_WAYS_IN, WAYS_IN_A_DAY
from turnout.tenants.audit_rules import WAYS_IN, AuditAction, AuditEntry
from turnout.tenants.caller import Caller
from turnout.tenants.key_rules import Role, is_login


class AuditTrail:
    """The trail of one request."""

    def __init__(self, gateway: Gateway, address: str) -> None:
        self._gateway = gateway
        self._address = address

    async def record(self, actor: Caller, action: AuditAction, target: str, **detail: str) -> None:
        """Never give it a secret. What is empty is left out. Raises Limited for one way in too many."""
        if action in WAYS_IN:
            await count_way_in(self._gateway, actor)
        if actor.person is not None:
            detail["person"] = actor.person
        elif is_login(actor.id):
            detail["login"] = actor.name  # the id is that of a token, which tells nobody who it was
        detail = {name: value for name, value in detail.items() if value}
        entry = AuditEntry(self._gateway.now(), actor.id, action, target, self._address, detail)
        await self._gateway.stores.tenants.audit.add(entry)
        get_log().info(action, target=target, by=actor.id, address=self._address, **detail)


async def count_way_in(gateway: Gateway, actor: Caller) -> None:
    """Under whoever the session is of that made it: a key that was found uses up its own alone."""
    if actor.role is Role.ADMIN:
        return
    of_a_key = A_WORKER_KEYS_WAYS_IN if actor.role is Role.WORKER else WAYS_IN_A_DAY
    most = A_GUESTS_WAYS_IN if actor.guest else of_a_key
    account = actor.parent or actor.id
    await gateway.stores.tenants.allowances.spend_way_in(account, most, gateway.now())


async def _trail(conn: HTTPConnection, gateway: GatewayDep) -> AuditTrail:
    return AuditTrail(gateway, conn.client.host if conn.client else "")


AuditDep = Annotated[AuditTrail, Depends(_trail)]
