"""Chat requests whose replica fails, over real sockets: who tries again, where, and who waits."""

import asyncio
from pathlib import Path

from tests.chat.test_chat_limits import ASK, PATH, at_once
from tests.conftest import Stores, wait_until
from tests.gateways import chatting
from tests.relay.kit import Call

from turnout.fleet.route_rules import Demand

BUSY = b"503 Service Unavailable"


async def refuses(call: Call) -> None:
    await call.json(b"{}", BUSY)


async def test_a_replica_that_refuses_is_at_fault_and_another_answers(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        refusing = [await chat.replica(refuses), await chat.replica(refuses)]
        await chat.replica(at_once)
        assert (await http.post(PATH, json=ASK)).status_code == 200
        tried = sum(len(replica.requests) for replica in refusing)
        assert all(len(replica.requests) <= 1 for replica in refusing), "none is tried twice by one request"
        assert (await http.post(PATH, json=ASK)).status_code == 200
        assert sum(len(replica.requests) for replica in refusing) == tried, (
            "it is avoided by the next request"
        )
        await wait_until(lambda: chat.at_rest, "nothing to be held")


async def test_one_refusal_of_the_only_replica_does_not_hold_up_those_who_come_after(
    stores: Stores, tmp_path: Path
) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http, asyncio.TaskGroup() as group:
        board = chat.gateway.inside.chat.switchboard

        async def refuses_once(call: Call) -> None:
            await (refuses if len(replica.requests) == 1 else at_once)(call)

        replica = await chat.replica(refuses_once)
        refused = group.create_task(http.post(PATH, json=ASK))
        await wait_until(
            lambda: board.demand().get("m", Demand()).waiting == 1, "the refused request to wait"
        )
        for _ in range(3):
            assert (await http.post(PATH, json=ASK)).status_code == 200
        assert not refused.done()
        await chat.replica(at_once)
        assert (await refused).status_code == 200, "it is answered by the replica that came"


async def test_a_request_that_every_replica_refuses_ends_with_the_last_refusal(
    stores: Stores, tmp_path: Path
) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        chat.gateway.inside.chat.switchboard._retry_s = 0.05
        replica = await chat.replica(refuses)
        assert (await http.post(PATH, json=ASK)).status_code == 503
        assert len(replica.requests) == 3, "as often as the relay tries"
        await wait_until(lambda: chat.at_rest, "nothing to be held")
