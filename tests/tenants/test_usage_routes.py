"""Usage by the engine's own figures: counted for answers, streams and cut streams; seen by those who may."""

import asyncio
import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.chat.test_chat_limits import ASK, PATH, answer
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, bearer, chatting
from tests.relay.kit import Call

from turnout.chat.request_body import read_body
from turnout.errors import InvalidRequest, Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import Publication
from turnout.fleet.worker_rules import Enrolment
from turnout.tasks.task_rules import TenantId
from turnout.tenants.gpu_time_rules import GpuBooking, cells_of
from turnout.tenants.key_rules import Role
from turnout.tenants.usage_rules import UsageRow, Used, day_of

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def chunk(text: str | None = None, **more: Any) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: %b\n\n" % json.dumps(said | more).encode()


async def streamed(call: Call) -> None:
    """As vLLM and llama.cpp do it: usage comes in an event of its own, if it was asked for."""
    asked = json.loads(call.request.body)
    await call.begin_events()
    for word in ("one", "two", "three"):
        await call.chunk(chunk(word))
    if (asked.get("stream_options") or {}).get("include_usage"):
        told = chunk(usage=USAGE)
        await call.chunk(told[:40])  # in two reads
        await asyncio.sleep(0.01)
        await call.chunk(told[40:])
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()


async def used(chat: Chat, token: str | None = None, **params: str) -> list[dict[str, Any]]:
    await chat.gateway.inside.chat.usage.flush()
    headers = bearer(token) if token else {}
    found = await chat.gateway.http.get("/v1/usage", params=params, headers=headers)
    assert found.status_code == 200, found.text
    return found.json()["data"]


def figures(row: dict[str, Any]) -> tuple[int, int, int, int]:
    return row["requests"], row["prompt_tokens"], row["completion_tokens"], row["uncounted_requests"]


async def test_a_stream_is_counted_and_the_client_sees_only_what_it_asked_for(
    stores: Stores, tmp_path: Path
) -> None:
    async with (
        chatting(stores, tmp_path) as chat,
        openai.AsyncOpenAI(base_url=f"{chat.base}/v1", api_key=chat.gateway.token, max_retries=0) as client,
    ):
        replica = await chat.replica(streamed)

        async def ask(**more: Any) -> list[Any]:
            stream: Any = await client.chat.completions.create(**ASK, stream=True, **more)  # type: ignore[arg-type]
            return [piece async for piece in stream]

        plain = await ask()
        assert [c.choices[0].delta.content for c in plain] == ["one", "two", "three"]
        assert json.loads(replica.requests[-1].body)["stream_options"] == {"include_usage": True}
        assert figures((await used(chat))[0]) == (1, 7, 3, 0)
        counted = await ask(stream_options={"include_usage": True})
        assert counted[-1].usage.total_tokens == 10
        assert len(counted) == 4
        assert len(await ask(stream_options={"include_usage": False})) == 3
        assert figures((await used(chat))[0]) == (3, 21, 9, 0)


async def test_a_stream_that_is_cut_counts_what_was_said(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:

        async def broken(call: Call) -> None:
            await call.begin_events()
            for word in ("one", "two"):
                await call.chunk(chunk(word))
            await asyncio.sleep(0.05)
            call.die()

        await chat.replica(broken)
        answered = await http.post(PATH, json={**ASK, "stream": True})
        assert "replica_lost" in answered.text
        assert figures((await used(chat))[0]) == (1, 0, 2, 1)


async def test_who_hangs_up_pays_for_what_it_heard_and_for_the_prompt_as_others_did(
    stores: Stores, tmp_path: Path
) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        counted = {**ASK, "user": "x" * 100}
        size = len(httpx.Request("POST", "http://x", json=counted).content)

        async def endless(call: Call) -> None:
            if b"xxx" in call.request.body:
                return await call.json(answer(size, 1))  # a token a byte
            if b'"stream"' in call.request.body:
                await call.begin_events()
                await call.chunk(chunk("one"))
            await call.wait_hung_up()

        replica = await chat.replica(endless)

        async def hang_up(**more: Any) -> int:
            """After the first event, or without one; the size of what was asked."""
            before = len(replica.requests)
            content = json.dumps({**ASK, **more}).encode()
            if more:
                async with http.stream("POST", PATH, content=content) as stream:
                    assert "one" in await anext(stream.aiter_text())
            else:
                asking = asyncio.create_task(http.post(PATH, content=content))
                await wait_until(lambda: len(replica.requests) > before, "the request to be under way")
                asking.cancel()
            await wait_until(lambda: chat.at_rest, "the gateway to notice")
            return len(content)

        first = await hang_up(stream=True) // 4  # nothing is known of the model yet
        assert figures((await used(chat))[0]) == (1, first, 1, 1)
        assert (await http.post(PATH, json=counted)).status_code == 200
        known = first + size
        assert figures((await used(chat))[0]) == (2, known, 2, 1)
        known += await hang_up(stream=True)
        known += await hang_up()
        assert figures((await used(chat))[0]) == (4, known, 3, 3)


async def test_answers_are_counted_by_tenant_and_each_sees_its_own(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:

        async def whole(call: Call) -> None:
            await call.json(answer(10, 5))

        await chat.replica(whole)
        other = await chat.gateway.key("other")
        admin = await chat.gateway.key("ops", Role.ADMIN)
        for headers in ({}, bearer(other), bearer(other)):
            assert (await http.post(PATH, json=ASK, headers=headers)).status_code == 200
        assert [figures(row) for row in await used(chat)] == [(1, 10, 5, 0)]
        assert [figures(row) for row in await used(chat, other)] == [(2, 20, 10, 0)]
        assert [row["tenant"] for row in await used(chat, admin)] == ["acme", "other"]
        assert [row["tenant"] for row in await used(chat, admin, tenant="acme")] == ["acme"]
        assert await used(chat, start="2020-01-01", end="2020-02-01") == []
        get = chat.gateway.http.get
        assert (await get("/v1/usage", params={"tenant": "other"})).status_code == 403
        for params in (
            {"start": "2026-01-01", "end": "2026-11-01"},
            {"start": "2026-02-01", "end": "2026-01-01"},
            {"start": "x"},
        ):
            refused = await get("/v1/usage", params=params)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "start")
        for name in ("by", "format"):
            refused = await get("/v1/usage", params={name: "nonsense"})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
        for month in ("2026-13", "0000-01", "9999-12", "٢٠٢٦-01"):
            assert (await get("/v1/usage/invoice", params={"month": month})).status_code == 400
        assert (await get("/v1/usage/invoice", params={"tenant": "other"})).status_code == 403


async def test_costs_are_a_table_and_a_page(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, gpu_prices={"*": 3.6}, currency="EUR") as chat:
        day, model = day_of(time.time()), "=m<b>"
        worked = Used(videos=2, attempts=3, work_ms=1, busy_ms=8000, loading_ms=2000)
        await stores.tenants.usage.add("b", [UsageRow(day, TenantId("acme"), model, worked)])
        cells = cells_of({f"busy:X:{model}": 8000, f"loading:X:{model}": 2000})
        booking = GpuBooking(day, {}, {("w-1", cell): ms for cell, ms in cells.items()})
        assert await stores.fleet.manager_state.publish("fleet", "test", Publication(gpu_time=booking))
        get = chat.gateway.http.get
        rows = await get("/v1/usage", params={"format": "csv"})
        lines = await get("/v1/usage", params={"format": "csv", "by": "tenant"})
        page = await get("/v1/usage/invoice", params={"month": day[:7]})
        empty = await get("/v1/usage/invoice", params={"month": "2020-02"})
    assert rows.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(rows.text))
    assert (row["tenant"], row["model"], row["gpu_seconds_held"]) == ("acme", f"'{model}", "10.0")
    assert (row["cost_held"], row["currency"], row["attempts"]) == ("0.01", "EUR", "3")
    (line,) = csv.DictReader(io.StringIO(lines.text))
    assert (line["tenant"], line["cost_per_video"], line["cost_loading"]) == ("acme", "0.005", "0.002")
    assert line["why"].startswith("a video took 5.0 GPU-seconds (4.0 busy, 1.0 loading) and 1.5 attempts")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<b>" not in page.text and "=m&lt;b&gt;" in page.text
    assert "0.01 EUR" in page.text and "GPU time of acme" in page.text
    assert empty.status_code == 200 and "0.00 EUR" in empty.text


async def test_gpu_time_has_prices_and_is_divided_among_tenants(stores: Stores, tmp_path: Path) -> None:
    prices = {"H100": 3.6, "cpu": 0.36}
    async with chatting(stores, tmp_path, gpu_prices=prices, currency="EUR") as chat:
        book, http = chat.gateway.inside.chat.usage, chat.gateway.http
        for tenant, prompt, completion, work_ms in (
            ("acme", 500_000, 500_000, 2999),
            ("other", 0, 1_000_000, 999),
        ):
            book.add(TenantId(tenant), "m", prompt, completion, 0)
            row = UsageRow(day_of(time.time()), TenantId(tenant), "m", Used(work_ms=work_ms))
            await stores.tenants.usage.add(tenant, [row])
        await book.flush()
        held = {
            "w-1": {"busy:NVIDIA H100:m": 8000, "idle:NVIDIA H100:m": 4000, "free:NVIDIA H100:": 1000},
            "w-2": {"idle:cpu:dull": 2000},
        }
        booked = {(w, cell): ms for w, counts in held.items() for cell, ms in cells_of(counts).items()}
        booking = GpuBooking(day_of(time.time()), {}, booked)
        assert await stores.fleet.manager_state.publish("fleet", "test", Publication(gpu_time=booking))
        await stores.fleet.workers.enrol(Enrolment(WorkerId("w-1"), "one", "http://192.0.2.9:1", "d" * 64))
        admin = bearer(await chat.gateway.key("ops", Role.ADMIN))
        told = (await http.get("/v1/usage", headers=admin)).json()
        mine = (await http.get("/v1/usage")).json()
    assert [(row["tenant"], row["model"], row["gpu_seconds"]["held"]) for row in told["data"]] == [
        ("", "dull", 2.0),
        ("acme", "m", 9.0),
        ("other", "m", 3.0),
    ]
    assert told["currency"] == "EUR" and told["priced"]
    assert told["total"]["gpu_seconds"] == {
        "held": 14,
        "busy": 8,
        "loading": 0,
        "idle": 6,
        "asleep": 0,
        "free": 1,
    }
    assert told["unused_cost"] == pytest.approx(5 * 0.001 + 2 * 0.0001)
    assert told["tenants"][1]["cost_per_million_tokens"] == pytest.approx(0.009)
    assert [(line["name"], line["known_as"]) for line in told["workers"]] == [("w-1", "one"), ("w-2", "")]
    for lines in (told["data"], told["models"], told["tenants"], told["workers"]):
        assert sum(line["gpu_seconds"]["held"] for line in lines) == told["total"]["gpu_seconds"]["held"]
        for line in lines:
            states = line["gpu_seconds"]
            assert states["held"] == sum(states[s] for s in ("busy", "loading", "idle", "asleep"))
    assert mine["data"] == [row for row in told["data"] if row["tenant"] == "acme"]
    assert mine["total"]["gpu_seconds"]["held"] == 9.0 and mine["total"]["gpu_seconds"]["free"] == 0
    assert mine["workers"] == []


async def test_what_could_not_be_written_is_written_later_and_once(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(stores, tmp_path) as chat:
        book = chat.gateway.inside.chat.usage
        add = chat.gateway.inside.stores.tenants.usage.add
        lost = asyncio.Event()

        async def loses_its_answer(*arguments: Any) -> None:
            await add(*arguments)
            if not lost.is_set():
                lost.set()
                raise Unavailable("the answer was lost")

        monkeypatch.setattr(chat.gateway.inside.stores.tenants.usage, "add", loses_its_answer)
        book.add(TenantId("acme"), "m", 1, 2, 0)
        await book.flush()
        assert lost.is_set()
        book.add(TenantId("acme"), "m", 10, 20, 0)
        assert figures((await used(chat))[0]) == (2, 11, 22, 0)


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ({"model": "m"}, None),
        ({"model": "m", "stream": False}, None),
        ({"model": "m", "stream": True, "stream_options": {"include_usage": True}}, None),
        ({"model": "m", "stream": True}, {"include_usage": True}),
        ({"model": "m", "stream": True, "stream_options": None}, {"include_usage": True}),
        (
            {"model": "m", "stream": True, "stream_options": {"include_usage": False, "x": 1}},
            {"include_usage": True, "x": 1},
        ),
    ],
)
def test_a_stream_is_asked_to_count_unless_it_does(body: dict[str, Any], sent: dict[str, Any] | None) -> None:
    model, asked, _ = read_body(json.dumps(body, indent=1).encode() + b"\n ")
    expected = None if sent is None else {**body, "stream_options": sent}
    assert model == "m"
    assert (None if asked is None else json.loads(asked)) == expected


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"{}", b'{"model": 3}', b"[" * 100_000, b'{"model":"\xff"}']
)
def test_a_body_that_names_no_model_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_body(body)


def test_a_stream_of_responses_tells_its_usage_by_itself() -> None:
    body = json.dumps({"model": "m", "stream": True}).encode()
    assert read_body(body, b"/v1/responses") == ("m", None, False)
    assert read_body(body, b"/v1/chat/completions")[1] is not None
