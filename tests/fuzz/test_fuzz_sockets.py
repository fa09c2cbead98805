"""Odd frames on WebSockets, before and after a key was shown."""

import asyncio
import json
import random
from pathlib import Path

from tests.conftest import Stores, wait_until
from tests.fuzz.runner import cases, damaged, watched
from tests.gateways import Chat, chatting
from websockets.frames import Frame, Opcode

HANDSHAKE = (
    b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n%b\r\n"
)
PATHS = (
    b"/v1/videos/ws",
    b"/v1/videos/video_1/ws",
    b"/workers/w-1/tunnel",
    b"/v1/videos/ws?after=x",
    b"/nothing",
)

_CONTROL = (Opcode.PING, Opcode.PONG, Opcode.CLOSE)


def frame(chance: random.Random, key: str) -> bytes:
    said = chance.choice(
        (json.dumps({"key": key}), '{"key": 1}', "[" * 5000, "{}", "", "x" * 70_000)
    ).encode()
    opcode = chance.choice((Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG, Opcode.CLOSE))
    if opcode in _CONTROL:
        said = said[:125]
    made = Frame(opcode, said, chance.random() < 0.8 or opcode in _CONTROL).serialize(
        mask=chance.random() < 0.9
    )
    return damaged(made, chance) if chance.random() < 0.4 else made


async def ask(chat: Chat, chance: random.Random) -> None:
    key = chat.gateway.token
    host, _, port = chat.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        shown = b"Authorization: Bearer %b\r\n" % key.encode() if chance.random() < 0.4 else b""
        writer.write(HANDSHAKE % (chance.choice(PATHS), shown))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert b" 500 " not in head[:20], head
        for _ in range(chance.randint(1, 6)):
            writer.write(frame(chance, key))
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            writer.write_eof()
        await asyncio.wait_for(reader.read(2000), 0.05)
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def test_fuzz_sockets(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat:
        with watched():
            for chance in cases():
                await asyncio.gather(*(ask(chat, random.Random(chance.random())) for _ in range(8)))
            live = chat.gateway.inside.videos.live
            await wait_until(lambda: live._count == 0, "no watcher stays")
        assert not any(chat.gateway.inside.background.restarts().values()), "no loop died"
