"""Webhooks: what is sent, how it is signed, when it is tried again. What is due lies in the outbox, so a restart
loses nothing; a crash in the middle of a delivery may repeat it, under the same `webhook-id`."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from urllib.parse import urlsplit

from pydantic import BaseModel

from turnout.errors import Misconfigured, TurnoutError
from turnout.store.outbound import Outbound
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.span_rules import delivery_span
from turnout.tasks.task_rules import Task
from turnout.tasks.video_json import Video, video_of
from turnout.tasks.webhook_outbox import Delivery, Outbox
from turnout.tasks.webhook_secret_rules import secret_bytes, signing
from turnout.tasks.webhook_secret_store import WebhookSecretStore
from turnout.telemetry.log import get_log
from turnout.telemetry.otlp import OtlpSpans

DELAYS_S = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0)
_JITTER = 0.1
_HOLD_S = 90.0  # longer than one delivery can take
_BATCH = 20
_GONE = 410


class Payload(BaseModel):
    """The body, the same bytes at every try. `timestamp` is when the video ended."""

    type: str
    timestamp: str
    data: Video


class DeliveryOutcome(Enum):
    DELIVERED = "delivered"
    GIVEN_UP = "given up"
    AGAIN = "again"


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of Standard Webhooks."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    try:
        key = secret_bytes(secret)
    except ValueError as err:  # binascii's is one
        raise Misconfigured(f"webhook_secret is not whsec_ and base64: {err}") from err
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def message_id(task: Task) -> str:
    return f"evt_{task.id}"


def body_of(task: Task, retention_s: float, urls: UrlSigner) -> bytes:
    ended_at = task.finished_at or task.created_at
    payload = Payload(
        type=f"video.{task.state}",
        timestamp=datetime.fromtimestamp(ended_at, UTC).isoformat(),
        data=video_of(task, retention_s, urls=urls, now=ended_at),
    )
    return payload.model_dump_json().encode()


def headers_of(task: Task, body: bytes, secrets: Sequence[str], now: float) -> Mapping[str, str]:
    return signed_headers(message_id(task), body, secrets, now)


def signed_headers(message: str, body: bytes, secrets: Sequence[str], now: float) -> Mapping[str, str]:
    """`message` is the webhook's id, the same at every try."""
    timestamp = int(now)
    return {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, message, timestamp, body) for secret in secrets),
    }


def retry_at(tries: int, now: float, chance: float) -> float:
    """When to try again if `tries` failures came before this one. `chance` is in [0, 1)."""
    return now + DELAYS_S[tries] * (1 + _JITTER * chance)


def outcome_of(status: int | None, tries: int) -> DeliveryOutcome:
    """What an answer means; None stands for no answer. 410 Gone says: never again."""
    if status is not None and 200 <= status < 300:
        return DeliveryOutcome.DELIVERED
    if status == _GONE or tries >= len(DELAYS_S):
        return DeliveryOutcome.GIVEN_UP
    return DeliveryOutcome.AGAIN


async def deliver_due(
    outbox: Outbox,
    fetcher: Outbound,
    secrets: WebhookSecretStore,
    service_secret: str,
    now: Callable[[], float],
    *,
    retention_s: float,
    urls: UrlSigner,
    chance: Callable[[], float],
    spans: OtlpSpans | None = None,
) -> int:
    """Sends what is due, side by side; returns how many were tried. `service_secret` signs for tenants without their own."""
    due = await outbox.due(now(), _HOLD_S, _BATCH)
    async with asyncio.TaskGroup() as group:
        for delivery in due:
            group.create_task(
                _deliver(
                    delivery, outbox, fetcher, secrets, service_secret, now, retention_s, urls, chance, spans
                ),
                name=f"webhook {delivery.task.id}",
            )
    return len(due)


async def _deliver(
    delivery: Delivery,
    outbox: Outbox,
    fetcher: Outbound,
    secrets: WebhookSecretStore,
    service_secret: str,
    now: Callable[[], float],
    retention_s: float,
    urls: UrlSigner,
    chance: Callable[[], float],
    spans: OtlpSpans | None,
) -> None:
    task, tries = delivery.task, delivery.tries
    if task.webhook_url is None:
        return await outbox.done(task.id)
    body = body_of(task, retention_s, urls)
    status, problem, began = None, None, now()
    try:
        signers = signing(await secrets.find(task.tenant), service_secret, now())
        status = await fetcher.post(task.webhook_url, headers_of(task, body, signers, now()), body)
    except TurnoutError as err:
        problem = err.message
    log = get_log().bind(**task.log_ids, tries=tries + 1, status=status, problem=problem)
    outcome = outcome_of(status, tries)
    host, failed = urlsplit(task.webhook_url).hostname or "", outcome is not DeliveryOutcome.DELIVERED
    span = delivery_span(task, tries, host, began, now(), status, outcome.value if failed else None)
    if spans is not None and span is not None:
        spans.record(span)
    await outbox.count(outcome.name.lower())
    match outcome:
        case DeliveryOutcome.AGAIN:
            await outbox.again(task.id, retry_at(tries, now(), chance()))
            log.warning("webhook failed")
        case DeliveryOutcome.DELIVERED:
            await outbox.done(task.id)
            log.info("webhook delivered")
        case DeliveryOutcome.GIVEN_UP:
            await outbox.done(task.id)
            log.error("webhook given up")
