"""A route that the relay asks before ASGI is documented, counted, traced and refused as any other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from tests.conftest import Stores, wait_until
from tests.gateways import Gateway, bearer, chatting

from turnout.errors import Unavailable
from turnout.run.stores import stores_on
from turnout.tasks.submission import Submissions
from turnout.telemetry.trace_rules import TraceSpan
from turnout.tenants.key_rules import Role

PAGE = "https://app.example.com"
BALL = {"prompt": "a red ball"}


class SpanList:
    dropped = 0

    def __init__(self) -> None:
        self.spans: list[TraceSpan] = []

    def record(self, span: TraceSpan) -> None:
        self.spans.append(span)


def client_of(gateway: Gateway, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.base, headers={**gateway.http.headers, **headers}, timeout=30)


async def test_a_hot_route_is_a_documented_route(gateway: Gateway) -> None:
    document = gateway.app.openapi()["paths"]["/v1/videos"]["post"]
    assert document["security"] == [{"HTTPBearer": []}]
    assert set(document["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    assert {"200", "400", "401", "413", "415", "429"} <= set(document["responses"])


async def test_json_is_answered_before_the_app_and_a_form_by_it(served: Gateway) -> None:
    seen: list[str] = []

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["method"])
        await app(scope, receive, send)

    app, served.app.middleware_stack = served.app.build_middleware_stack(), watched
    async with client_of(served) as http:
        answers = [
            await http.post("/v1/videos", json=BALL),
            await http.post("/v1/videos", content=b'{"prompt": "a red ball"}'),
            await http.post("/v1/videos?from=page", json=BALL),
            await http.post("/v1/videos", json=BALL, headers={"expect": "100-continue"}),
            await http.post("/v1/videos", content=_pieces(b'{"prompt":', b' "a red ball"}')),
        ]
        assert [one.status_code for one in answers] == [200] * 5
        assert seen == []
        answers = [
            await http.post("/v1/videos", files={"prompt": (None, "a red ball")}),
            await http.post("/v1/videos", content="x", headers={"content-type": "text/plain"}),
            await http.get("/v1/videos"),
        ]
        assert [one.status_code for one in answers] == [200, 415, 200]
        assert seen == ["POST", "POST", "GET"]
        assert len(answers[2].json()["data"]) == 6


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0.01)


async def test_answers_have_the_same_headers_and_links_both_ways(served: Gateway) -> None:
    async with client_of(served) as http:
        hot = await http.post("/v1/videos", json=BALL)
        form = await http.post("/v1/videos", files={"prompt": (None, "a red ball")})
    assert set(hot.headers) == set(form.headers)
    varying = {"date", "x-request-id", "content-length"}
    assert {(k, v) for k, v in hot.headers.items() if k not in varying} == {
        (k, v) for k, v in form.headers.items() if k not in varying
    }
    assert set(hot.json()) == set(form.json())
    for answer in (hot, form):
        assert answer.json()["events_url"].startswith(f"{served.base}/v1/videos/{answer.json()['id']}/events")


async def test_a_hot_route_is_counted_by_its_route(served: Gateway) -> None:
    async with client_of(served) as http:
        await http.post("/v1/videos", json=BALL)
        await http.post("/v1/videos", json={})
        text = (await http.get("/metrics")).text
    for status in (200, 400):
        assert (
            f'turnout_http_requests_total{{method="POST",route="/v1/videos",status="{status}"}} 1.0' in text
        )
    assert 'turnout_http_request_duration_seconds_count{method="POST",route="/v1/videos"} 2.0' in text


async def test_what_a_hot_route_refuses_has_the_usual_shape(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[tuple[bytes, dict[str, str], int]] = [
        (b"{", {"content-type": "application/json"}, 400),
        (b"{}", bearer("tk-a.b"), 401),
        (b"{}", {"authorization": ""}, 401),
        (b"{}", bearer(await served.key(role=Role.WORKER)), 403),
        (b"{}", {"x-turnout-priority": "odd"}, 400),
        (b"{}", {"idempotency-key": "a key"}, 400),
    ]
    async with client_of(served) as http:
        for content, headers, status in refused:
            answers = [
                await http.post("/v1/videos", content=content, headers=headers),
                await served.http.post("/v1/videos", content=content, headers=headers),  # by the app
            ]
            for answer in answers:
                assert answer.status_code == status, answer.text
                assert answer.headers["x-request-id"].startswith("req-")
            assert answers[0].json() == answers[1].json()
            assert answers[0].headers.get("www-authenticate") == answers[1].headers.get("www-authenticate")

        async def away(*_: object) -> None:
            raise Unavailable("redis at 10.0.0.1 is away")

        monkeypatch.setattr(Submissions, "create", away)
        answer = await http.post("/v1/videos", json=BALL)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2" and "10.0.0.1" not in answer.text

        async def odd(*_: object) -> None:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(Submissions, "create", odd)
        answer = await http.post("/v1/videos", json=BALL)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert "secret" not in answer.text
        monkeypatch.undo()
        assert (await http.post("/v1/videos", json=BALL)).status_code == 200  # on the same connection


async def test_an_allowed_page_may_read_a_hot_answer(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, cors_origins=PAGE) as chat, chat.client() as client:
        for body in (BALL, {}):
            for origin, allowed in ((PAGE, PAGE), ("https://e.example", None)):
                answer = await client.post("/v1/videos", json=body, headers={"origin": origin})
                assert answer.headers.get("access-control-allow-origin") == allowed


async def test_a_hot_request_is_traced(stores: Stores, tmp_path: Path) -> None:
    sink = SpanList()
    stores = stores_on(stores.link, stores.blobs, 3600, cast(Any, sink))
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with chatting(stores, tmp_path, traces_sample=0.0) as chat, chat.client() as client:
        await client.post("/v1/videos", json=BALL)
        assert sink.spans == []
        given = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        answer = await client.post("/v1/videos", json=BALL, headers=given)
        [span] = sink.spans
        assert (span.name, span.parent, span.context.trace) == ("POST /v1/videos", "b7ad6b7169203331", trace)
        assert span.attributes["http.response.status_code"] == 200
        assert span.attributes["turnout.request"] == answer.headers["x-request-id"]
        task = await chat.gateway.task(answer.json()["id"])
        assert task.traceparent == span.context.traceparent


async def test_a_hot_request_whose_client_hangs_up_is_accepted_all_the_same(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, entered, go_on = Submissions.create, asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> Any:
        entered.set()
        await go_on.wait()
        return await create(*given)

    monkeypatch.setattr(Submissions, "create", slow)
    async with client_of(served) as http:
        asking = asyncio.create_task(http.post("/v1/videos", json=BALL))
        await entered.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await wait_until(lambda: not served.inside.relay.connections, "the connection to be gone")
    go_on.set()

    async def accepted() -> bool:
        return len((await served.http.get("/v1/videos")).json()["data"]) == 1

    await wait_until(accepted, "the task")
    await wait_until(lambda: served.inside.relay.body_bytes == 0, "its body to be given back")
