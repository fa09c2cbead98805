"""Webhooks: signed, retried on a schedule, the same message at every try."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores, make_task
from tests.gateways import running

from turnout.errors import Misconfigured
from turnout.store.outbound import Outbound
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.task_rules import Cancelled, Limits, TaskId, TenantId
from turnout.tasks.webhooks import DELAYS_S, DeliveryOutcome, WebhookSender, outcome_of, retry_at, sign

SECRET = "whsec_" + base64.b64encode(b"a secret of some length").decode()


def test_a_signature_is_that_of_standard_webhooks() -> None:
    # The worked example of the specification's reference libraries.
    signature = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("secret", ["", "secret", "whsec_***"])
def test_a_bad_secret_is_the_operators_fault(secret: str) -> None:
    with pytest.raises(Misconfigured, match="webhook_secret"):
        sign(secret, "id", 1, b"")


def test_the_schedule_of_retries() -> None:
    assert [retry_at(n, 1000.0, 0.0) - 1000 for n in range(6)] == [5, 30, 120, 600, 3600, 21600]
    assert retry_at(0, 0.0, 0.999) == pytest.approx(5.5, abs=0.01)


@pytest.mark.parametrize(
    ("status", "tries", "expected"),
    [
        (200, 0, DeliveryOutcome.DELIVERED),
        (204, 6, DeliveryOutcome.DELIVERED),
        (302, 0, DeliveryOutcome.AGAIN),
        (404, 0, DeliveryOutcome.AGAIN),
        (500, 5, DeliveryOutcome.AGAIN),
        (500, 6, DeliveryOutcome.GIVEN_UP),
        (None, 0, DeliveryOutcome.AGAIN),
        (None, 6, DeliveryOutcome.GIVEN_UP),
        (410, 0, DeliveryOutcome.GIVEN_UP),
    ],
)
def test_what_an_answer_means(status: int | None, tries: int, expected: DeliveryOutcome) -> None:
    assert outcome_of(status, tries) is expected


class Receiver:
    """Answers with the next of `statuses`, the last one for ever; keeps what it got."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {
            name.lower(): value
            for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:] if line)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        self.got.append((headers, body))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(*statuses)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    async with server:
        receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        yield receiver


@asynccontextmanager
async def sending(
    stores: Stores, now: Callable[[], float], *, allow_private: bool = True
) -> AsyncIterator[WebhookSender]:
    async with aclosing(Outbound(allow_private)) as outbound:
        urls = UrlSigner(b"secret", "https://gateway", 60)
        yield WebhookSender(
            stores.outbox,
            outbound,
            stores.webhook_secrets,
            SECRET,
            3600,
            urls,
            now,
            lambda: 0.0,
            stores.spans,
        )


async def deliver(stores: Stores, now: float, *, allow_private: bool = True) -> int:
    async with sending(stores, lambda: now, allow_private=allow_private) as sender:
        return await sender.send_due()


async def ended_task(stores: Stores, url: str) -> TaskId:
    task = make_task(webhook_url=url)
    await stores.tasks.submit(task, Limits())
    await stores.tasks.apply(task.id, Cancelled(time.time()))
    return task.id


def signature_of(headers: dict[str, str], body: bytes, secret: str) -> str:
    """By hand, as a receiver computes it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def check_signature(headers: dict[str, str], body: bytes) -> None:
    assert headers["webhook-signature"] == signature_of(headers, body, SECRET)


async def test_a_delivery_is_signed_and_done_once(stores: Stores) -> None:
    async with receiving(200) as receiver:
        task_id = await ended_task(stores, receiver.url)
        now = time.time() + 1
        assert await deliver(stores, now) == 1
        assert await deliver(stores, now + 10_000) == 0
    ((headers, body),) = receiver.got
    check_signature(headers, body)
    payload: dict[str, Any] = json.loads(body)
    assert payload["type"] == "video.cancelled"
    assert (payload["data"]["id"], payload["data"]["object"]) == (task_id, "video")
    assert headers["webhook-id"] == f"evt_{task_id}"
    assert headers["content-type"] == "application/json"


async def test_a_failing_receiver_gets_the_same_message_again_until_it_takes_it(stores: Stores) -> None:
    async with receiving(500, 302, 200) as receiver:
        await ended_task(stores, receiver.url)
        now = time.time() + 1
        assert await deliver(stores, now) == 1
        assert await deliver(stores, now + DELAYS_S[0] - 1) == 0
        assert await deliver(stores, now + DELAYS_S[0] + 1) == 1
        assert await deliver(stores, now + DELAYS_S[0] + 1 + DELAYS_S[1] + 1) == 1
        assert await deliver(stores, now + 100_000) == 0
    assert len({(h["webhook-id"], body) for h, body in receiver.got}) == 1
    assert len({h["webhook-timestamp"] for h, _ in receiver.got}) == 3
    for headers, body in receiver.got:
        check_signature(headers, body)


async def test_after_the_last_try_it_is_given_up(stores: Stores) -> None:
    async with receiving(503) as receiver:
        await ended_task(stores, receiver.url)
        now = time.time() + 1
        for delay in (*DELAYS_S, 10**6):
            assert await deliver(stores, now) == 1
            now += delay + 1
        assert await deliver(stores, now) == 0
        assert len(receiver.got) == 7


async def test_a_crash_in_the_middle_only_delays_it(stores: Stores) -> None:
    async with receiving(200) as receiver:
        await ended_task(stores, receiver.url)
        now = time.time() + 1
        assert len(await stores.outbox.due(now, 90, {})) == 1  # taken by a manager that then died
        assert await deliver(stores, now + 1) == 0
        assert await deliver(stores, now + 91) == 1
        assert len(receiver.got) == 1


async def test_a_private_receiver_is_never_called_unless_allowed(stores: Stores) -> None:
    async with receiving(200) as receiver:
        await ended_task(stores, receiver.url)
        now = time.time() + 1
        assert await deliver(stores, now, allow_private=False) == 1
        assert receiver.got == []
        assert await deliver(stores, now + DELAYS_S[0] + 1) == 1
        assert len(receiver.got) == 1


async def test_the_payload_is_the_video_as_get_shows_it(stores: Stores, tmp_path: Path) -> None:
    async with receiving(200) as receiver, running(stores, tmp_path, allow_private_urls=True) as gateway:
        video = await gateway.submit(webhook_url=receiver.url)
        await gateway.gang.finish(await gateway.gang.claim())
        shown = (await gateway.http.get(f"/v1/videos/{video}")).json()
        async with sending(stores, lambda: time.time() + 1) as sender:
            sender.retention_s, sender.urls = (
                gateway.inside.videos.settings.retention_s,
                gateway.inside.videos.urls,
            )
            await sender.send_due()
        payload = json.loads(receiver.got[0][1])
        told = payload["data"]
        del gateway.http.headers["authorization"]
        assert (await gateway.http.get(told["url"])).content == b"\0" * 1000
    assert payload["type"] == "video.completed"
    urls = {name: None for name in ("url", "events_url")}  # their times differ
    assert {**told, **urls} == {**shown, **urls}


async def test_a_tenant_replaces_its_secret_while_its_receiver_knows_only_the_old_one(
    stores: Stores, tmp_path: Path
) -> None:
    async with receiving(200) as receiver, running(stores, tmp_path, allow_private_urls=True) as gateway:

        async def rotate(overlap_s: int) -> str:
            answer = await gateway.http.post("/v1/webhooks/secret", json={"overlap_s": overlap_s})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["secret"])

        async def signers(later_s: float, *known: str) -> list[str]:
            """Those of the known secrets that verify a webhook which is sent `later_s` from now."""
            await gateway.http.post(f"/v1/videos/{await gateway.submit(webhook_url=receiver.url)}/cancel")
            assert await deliver(stores, time.time() + later_s) == 1
            headers, body = receiver.got[-1]
            sent = headers["webhook-signature"].split(" ")
            assert len(sent) == len(set(sent))
            found = [secret for secret in known if signature_of(headers, body, secret) in sent]
            assert len(found) == len(sent), "nothing else signed it"
            return found

        assert await signers(1, SECRET) == [SECRET]
        first = await rotate(3600)
        assert await signers(1, SECRET, first) == [SECRET, first]
        assert await signers(3700, SECRET, first) == [first]
        second = await rotate(86_400)
        assert await signers(3500, SECRET, first, second) == [SECRET, first, second]
        assert await signers(3700, SECRET, first, second) == [first, second]
        assert await signers(90_000, SECRET, first, second) == [second]
        third = await rotate(0)
        assert await signers(1, SECRET, first, second, third) == [third], "all others have leaked, say"
        other = make_task(webhook_url=receiver.url, tenant=TenantId("another"))
        await stores.tasks.submit(other, Limits())
        await stores.tasks.apply(other.id, Cancelled(time.time()))
        assert await deliver(stores, time.time() + 1) == 1
        check_signature(*receiver.got[-1])


async def test_a_secret_that_cannot_be_read_is_not_replaced_by_another(stores: Stores) -> None:
    async with receiving(200) as receiver:
        await ended_task(stores, receiver.url)
        await stores.link.client.hset(stores.link.keys.webhook_secrets(), "acme", b"{}")
        now = time.time() + 1
        assert await deliver(stores, now) == 1
        assert receiver.got == []
        await stores.link.client.hdel(stores.link.keys.webhook_secrets(), "acme")
        assert await deliver(stores, now + DELAYS_S[0] + 1) == 1
        check_signature(*receiver.got[-1])
