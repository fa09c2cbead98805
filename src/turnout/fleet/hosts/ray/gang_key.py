"""The key that all tokens of gangs on Ray hang on. The manager makes it. Its secret is thrown away, so nobody
can use the key itself; whoever revokes it ends the tokens within seconds, and gangs that still run are replaced with new ones."""

import secrets
import time

from turnout.stores import Stores
from turnout.tasks.gang_tokens import GangRight, GangTokens
from turnout.tasks.task_rules import GangId, TenantId
from turnout.tenants.key_rules import Key, Role, mint

_NAME = "gangs on Ray"


class GangKey:
    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def token(self, model: str, gang: GangId) -> str:
        tokens = GangTokens(await self._stores.share_links.url_secret())
        key = next(iter(await self._keys()), None) or await self._new_key()
        return tokens.token(GangRight(key.id, gang, model))

    async def revoke(self) -> None:
        for key in await self._keys():
            await self._stores.tenants.keys.revoke(key.id)

    async def _keys(self) -> list[Key]:
        found = await self._stores.tenants.keys.all()
        return [key for key in found if key.role is Role.WORKER and key.name == _NAME]

    async def _new_key(self) -> Key:
        secret = secrets.token_urlsafe(32)
        key, _ = mint(secrets.token_hex(6), secret, TenantId("default"), Role.WORKER, _NAME, time.time())
        await self._stores.tenants.keys.add(key)
        return key
