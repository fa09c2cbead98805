"""Chat requests for a name that has a version, over real sockets: who answers, and under which name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.chat.test_chat_limits import PATH, at_once
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, chatting
from tests.relay.kit import DONE, Call

from turnout.chat.request_body import conversation_of, with_model
from turnout.fleet.publication import Publication
from turnout.fleet.route_rules import ModelRoutes
from turnout.fleet.version_rules import VersionShare

HI = {"role": "user", "content": "hi"}


def turn(user: str, *more: Mapping[str, str]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": user}, *more]}


async def publish(chat: Chat, share: float, refusal: str | None = None) -> None:
    """The first replica serves `m`, the second its version."""
    board = chat.gateway.inside.chat.switchboard
    first, second = (board._routes or {})["m"].routes[:2]
    told = {
        "m": ModelRoutes((first,), versions=(VersionShare("m-next", share),)),
        "m-next": ModelRoutes(() if refusal else (second,), refusal=refusal),
    }
    stores = chat.gateway.stores
    assert await stores.fleet.manager_state.publish("fleet", "test", Publication(routes=told))
    await wait_until(lambda: board._routes == told, "the gateway to hear of the versions")


async def test_a_share_of_conversations_goes_to_the_version_and_stays_there(
    stores: Stores, tmp_path: Path
) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        base, version = await chat.replica(at_once), await chat.replica(at_once)
        await publish(chat, 0.5)
        answered = {"role": "assistant", "content": "hello"}
        for n in range(40):
            before = len(version.requests)
            assert (await http.post(PATH, json=turn(f"talk {n}"))).status_code == 200
            went = len(version.requests) - before
            assert (await http.post(PATH, json=turn(f"talk {n}", answered, HI))).status_code == 200
            assert len(version.requests) - before == 2 * went, "the second turn follows the first"
        assert 0 < len(version.requests) < 80 and len(base.requests) + len(version.requests) == 80
        assert {json.loads(r.body)["model"] for r in base.requests} == {"m"}
        assert {json.loads(r.body)["model"] for r in version.requests} == {"m-next"}
        said = (await chat.gateway.http.get("/metrics")).text
        assert f'turnout_chat_requests_total{{model="m-next",outcome="200"}} {len(version.requests)}' in said


async def test_a_version_that_cannot_be_served_leaves_its_share(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        base = await chat.replica(at_once)
        await chat.replica(at_once)
        await publish(chat, 1.0, refusal="its weights are not there")
        assert (await http.post(PATH, json=turn("hello"))).status_code == 200
        assert len(base.requests) == 1
        direct = await http.post(PATH, json={**turn("hello"), "model": "m-next"})
        assert direct.status_code == 503, "asked for by its own name it says why"


async def test_a_stream_of_a_version_hides_the_usage_that_nobody_asked_for(
    stores: Stores, tmp_path: Path
) -> None:
    async def streams(call: Call) -> None:
        await call.begin_events()
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        for said in ({"choices": [{"delta": {"content": "hi"}}]}, {"choices": [], "usage": usage}):
            await call.chunk(b"data: %b\n\n" % json.dumps(said).encode())
        await call.chunk(DONE)
        await call.end()

    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        await chat.replica(streams)
        version = await chat.replica(streams)
        await publish(chat, 1.0)
        asked = {**turn("hello"), "stream": True}
        hidden = await http.post(PATH, json=asked)
        shown = await http.post(PATH, json={**asked, "stream_options": {"include_usage": True}})
        assert b"usage" not in hidden.content and b"prompt_tokens" in shown.content
        assert all(json.loads(r.body)["stream_options"]["include_usage"] for r in version.requests)


SYSTEM = {"role": "system", "content": "be brief"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"messages": [SYSTEM, HI]}, {"messages": [SYSTEM, HI, SYSTEM, HI], "stream": True}, True),
        ({"messages": [HI]}, {"messages": [{"role": "user", "content": "ho"}]}, False),
        ({"messages": [SYSTEM]}, {"messages": [SYSTEM, SYSTEM]}, False),
        ({"prompt": "a"}, {"prompt": "b"}, False),
        ({"input": "a"}, {"input": "a", "temperature": 0}, True),
        ({"messages": ["odd"]}, {"messages": ["odd"]}, True),
        ({}, {}, True),
    ],
)
def test_a_conversation_is_known_by_how_it_began(one: Any, other: Any, same: bool) -> None:
    begun, later = (conversation_of(json.dumps(body).encode()) for body in (one, other))
    assert (begun == later) is same


def test_only_the_models_name_is_changed() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "“ü” 1e400"}], "temperature": 0.1}
    assert json.loads(with_model(json.dumps(body).encode(), "m-next")) == {**body, "model": "m-next"}
