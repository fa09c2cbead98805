"""Damaged HTTP at the relay, on relayed paths, paths of the app, and upgrades."""

import asyncio
import random
import re

from tests.conftest import wait_until
from tests.fuzz.runner import cases, damaged, watched
from tests.relay.kit import Client, Stand, echo, post, settings_of, standing
from tests.relay.test_limits import UPGRADE
from tests.relay.test_refusals import SMUGGLING

CORPUS = [
    *(raw for _, raw in SMUGGLING.values()),
    post(b'{"model":"m"}'),
    post(b"{}", b"/cold"),
    post(b"x" * 3000, extra=b"Expect: 100-continue\r\n"),
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /cold HTTP/1.1\r\nHost: x\r\n\r\n",
    UPGRADE % (b"", b""),
]
SHORT = settings_of(
    head_s=0.2, body_stall_s=0.2, body_s=0.5, keep_alive_s=0.2, write_stall_s=0.5, answer_s=2, chunk_s=2
)


async def ask(stand: Stand, chance: random.Random) -> None:
    client: Client = await stand.client()
    try:
        for _ in range(chance.randint(1, 3)):
            client.send(damaged(chance.choice(CORPUS), chance))
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        if chance.random() < 0.8:
            client.writer.write_eof()
        said = await asyncio.wait_for(client.reader.read(), 10)
        for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said):
            assert status != b"500", said
    except OSError:  # it was refused and closed
        pass
    finally:
        client.hang_up()
        stand.clients.remove(client)


async def test_fuzz_framing() -> None:
    async with standing(SHORT) as stand:
        await stand.replica(echo)
        with watched():
            for chance in cases():
                await asyncio.gather(*(ask(stand, random.Random(chance.random())) for _ in range(8)))
            await wait_until(lambda: not stand.relay.connections, "no connection stays")
            assert stand.relay.body_bytes == 0
            assert stand.admission.settled
        assert (await (await stand.client()).ask(b"{}")).status == 200
