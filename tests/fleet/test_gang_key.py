"""The tokens of gangs on Ray: good for their gang alone, and only as long as the service's key for them is."""

import pytest
from tests.conftest import Stores, wait_until
from tests.gangs import open_door

from turnout.errors import Unauthorized
from turnout.fleet.hosts.ray.gang_key import GangKey
from turnout.gang.gang_api import GangApi
from turnout.tasks.gang_messages import GangOpening
from turnout.tasks.task_rules import GangId

MODEL = "wan-tiny-t2v"


async def test_all_tokens_end_with_the_key_and_the_next_ones_have_another(stores: Stores) -> None:
    key = GangKey(stores.tenants.keys)
    async with open_door(stores) as door:
        tokens = door.gateway.inside.videos.gangs.tokens

        async def opened(gang: str) -> GangApi:
            door.apis.append(GangApi(door.base, tokens.token(await key.right(MODEL, GangId(gang)))))
            return door.apis[-1]

        for gang in ("one", "two"):
            await opened(gang)
        assert [await api.held() for api in door.apis] == [0, 0]
        with pytest.raises(Unauthorized):  # it is no worker's key
            await door.apis[0].open_gang(GangOpening(model=MODEL))
        await key.revoke()

        async def ended() -> bool:
            try:
                await door.apis[0].held()
            except Unauthorized:
                return True
            return False

        await wait_until(ended, "the token to end", 30)
        assert await (await opened("one")).held() == 0
        with pytest.raises(Unauthorized):
            await door.apis[1].held()
