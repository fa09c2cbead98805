"""Chat through a server that knows ASGI alone, such as Ray Serve's: the same answers as through the relay's own server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.conftest import Stores, wait_until
from tests.gateways import Chat, running, serving
from tests.relay.kit import Call

from turnout.fleet.hosts.ray.relay_socket import RelaySocket
from turnout.relay import RelaySettings

PATH = "/v1/chat/completions"
ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}


@asynccontextmanager
async def chatting_over_asgi(stores: Stores, tmp_path: Path) -> AsyncIterator[Chat]:
    async with running(stores, tmp_path) as gateway:
        chat_socket = RelaySocket(gateway.inside.chat.relay, RelaySettings())
        gateway.inside.background.add("relay socket", chat_socket.run)
        gateway.app.include_router(chat_socket.router)
        async with serving(gateway.app) as base:
            chat = Chat(gateway, base, [])
            try:
                yield chat
            finally:
                gateway.inside.chat.relay.close()
                await chat_socket.aclose()
                for replica in chat.replicas:
                    replica.stop()


async def test_answers_and_refusals_are_the_relays(stores: Stores, tmp_path: Path) -> None:
    async def at_once(call: Call) -> None:
        await call.json(b'{"said": "hi"}')

    async with chatting_over_asgi(stores, tmp_path) as chat, chat.client() as http:
        await chat.replica(at_once)
        answer = await http.post(PATH, json=ASK)
        assert (answer.status_code, answer.json()) == (200, {"said": "hi"})
        assert answer.headers["content-length"] == str(len(answer.content))
        assert len(answer.headers.get_list("x-request-id")) == 1
        assert "x-ratelimit-limit-requests" not in answer.headers
        unknown = await http.post(PATH, json={**ASK, "model": "none"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        stranger = await http.post(PATH, json=ASK, headers={"authorization": "Bearer tk-wrong"})
        assert stranger.status_code == 401


async def test_a_stream_comes_as_the_engine_sends_it_and_its_end_frees_the_seat(
    stores: Stores, tmp_path: Path
) -> None:
    hung_up: list[bool] = []

    async def slowly(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b'data: {"choices": []}\n\n')
        await call.wait_hung_up()
        hung_up.append(True)

    async with chatting_over_asgi(stores, tmp_path) as chat, chat.client() as http:
        await chat.replica(slowly)
        async with http.stream("POST", PATH, json={**ASK, "stream": True}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert (await anext(answer.aiter_lines())).startswith("data:")
            assert not chat.at_rest
        await wait_until(lambda: bool(hung_up) and chat.at_rest, "the seat to be free")


async def test_a_client_that_leaves_before_its_answer_frees_the_seat(stores: Stores, tmp_path: Path) -> None:
    asked: list[bool] = []

    async def never(call: Call) -> None:
        asked.append(True)
        await call.wait_hung_up()

    async with chatting_over_asgi(stores, tmp_path) as chat:
        await chat.replica(never)
        async with chat.client() as http:
            asking = asyncio.create_task(http.post(PATH, json=ASK))
            await wait_until(lambda: bool(asked), "the replica to be asked")
            asking.cancel()
        await wait_until(lambda: chat.at_rest, "the seat to be free")


async def test_a_stranger_is_refused_before_its_body_is_read(stores: Stores, tmp_path: Path) -> None:
    async with chatting_over_asgi(stores, tmp_path) as chat:
        reader, writer = await asyncio.open_connection(*chat.base.removeprefix("http://").split(":"))
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tk-wrong\r\n"
        writer.write(f"{head}Content-Length: 20971520\r\n\r\n".encode())  # of which nothing comes
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        writer.close()
