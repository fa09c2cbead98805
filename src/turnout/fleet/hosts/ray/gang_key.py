"""The key that all tokens of gangs on Ray hang on. The manager makes it. Its secret is thrown away, so nobody
can use the key itself; whoever revokes it ends the tokens within seconds, and gangs that still run are replaced with new ones."""

import secrets
import time

from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import GangId, TenantId
from turnout.tenants.key_rules import Key, Role, mint
from turnout.tenants.key_store import KeyStore

_NAME = "gangs on Ray"


class GangKey:
    def __init__(self, keys: KeyStore) -> None:
        self._store = keys

    async def right(self, model: str, gang: GangId) -> GangRight:
        key = next(iter(await self._keys()), None) or await self._new_key()
        return GangRight(key.id, gang, model)

    async def revoke(self) -> None:
        for key in await self._keys():
            await self._store.revoke(key.id)

    async def _keys(self) -> list[Key]:
        found = await self._store.all()
        return [key for key in found if key.role is Role.WORKER and key.name == _NAME]

    async def _new_key(self) -> Key:
        secret = secrets.token_urlsafe(32)
        key, _ = mint(secrets.token_hex(6), secret, TenantId("default"), Role.WORKER, _NAME, time.time())
        await self._store.add(key)
        return key
