"""Webhooks: what is sent, how it is signed, when it is tried again. What is due lies in the outbox, so a restart
loses nothing; a crash in the middle of a delivery may repeat it, under the same `webhook-id`."""

import asyncio
import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from turnout.errors import Misconfigured, TurnoutError, Unavailable
from turnout.store.outbound import Outbound
from turnout.tasks.robot_rules import Robot, called_url, refusal_of, robot_call, robot_of, words_of
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.span_rules import delivery_span
from turnout.tasks.task_rules import Task, TenantId
from turnout.tasks.video_json import video_of
from turnout.tasks.webhook_outbox import Delivery, Outbox, WebhookMessage, webhook_body
from turnout.tasks.webhook_secret_rules import secret_bytes, signing
from turnout.tasks.webhook_secret_store import WebhookSecretStore
from turnout.telemetry.log import get_log
from turnout.telemetry.otlp import OtlpSpans
from turnout.tenants.turn_rules import Turn

DELAYS_S = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0)
_JITTER = 0.1
_HOLD_S = 90.0  # longer than one delivery can take, its turn included
_LOOK_S = 1.0  # at what came meanwhile
_GONE = 410
_MAX_ANSWER_BYTES = 64 * 1024  # of a robot


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


def signed_headers(message: WebhookMessage, secrets: Sequence[str], now: float) -> Mapping[str, str]:
    timestamp, body = int(now), message.body.encode()
    return {
        "content-type": "application/json",
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, message.id, timestamp, body) for secret in secrets),
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


@dataclass(slots=True)
class WebhookSender:
    """Sends what is due in the outbox. `service_secret` signs for tenants without their own. `site` is how the service is called
    where robots tell of it."""

    outbox: Outbox
    fetcher: Outbound
    secrets: WebhookSecretStore
    service_secret: str
    retention_s: float
    urls: UrlSigner
    now: Callable[[], float]
    chance: Callable[[], float]
    spans: OtlpSpans | None = None
    site: str = "Turnout"

    async def send_due(self) -> int:
        """Sends side by side until nothing is due or under way; returns how many were tried. What comes meanwhile waits for
        none that is slow."""
        tried, ended = 0, asyncio.Event()
        under_way: Counter[TenantId] = Counter()

        async def send(delivery: Delivery) -> None:
            try:
                await self._send(delivery)
            except Unavailable as err:  # it is due again when its hold ends
                get_log().warning("webhook's outcome not written", webhook=delivery.entry, reason=err.message)
            finally:
                under_way[delivery.tenant] -= 1
                ended.set()

        async with asyncio.TaskGroup() as group:
            while (due := await self._due(under_way)) or under_way.total():
                for delivery in due:
                    under_way[delivery.tenant] += 1
                    group.create_task(send(delivery), name=f"webhook {delivery.entry}")
                tried += len(due)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await ended.wait()
                ended.clear()
        return tried

    async def _due(self, under_way: Mapping[TenantId, int]) -> Sequence[Delivery]:
        try:
            return await self.outbox.due(self.now(), _HOLD_S, under_way)
        except Unavailable:
            if not any(under_way.values()):
                raise
            return ()  # what is under way must not be broken off

    async def _send(self, delivery: Delivery) -> None:
        message = delivery.of if isinstance(delivery.of, WebhookMessage) else self._message_of(delivery.of)
        if message is None:
            return await self.outbox.done(delivery.entry)
        began, status, problem = self.now(), None, None
        try:
            status = await self._post(message, began)
        except TurnoutError as err:
            problem = err.message
        outcome = outcome_of(status, delivery.tries)
        self._trace(delivery, message.url, began, status, outcome)
        await self.outbox.count(outcome.name.lower())
        ids = delivery.of.log_ids if isinstance(delivery.of, Task) else {"tenant": message.tenant}
        log = get_log().bind(
            webhook=message.id, **ids, tries=delivery.tries + 1, status=status, problem=problem
        )
        match outcome:
            case DeliveryOutcome.AGAIN:
                await self.outbox.again(delivery.entry, retry_at(delivery.tries, self.now(), self.chance()))
                log.warning("webhook failed")
            case DeliveryOutcome.DELIVERED:
                await self.outbox.done(delivery.entry)
                log.info("webhook delivered")
            case DeliveryOutcome.GIVEN_UP:
                await self.outbox.done(delivery.entry)
                log.error("webhook given up")

    async def _post(self, message: WebhookMessage, now: float) -> int:
        """The status of the answer. Raises what a robot refuses, too."""
        robot = robot_of(message.url)
        if robot is not None:
            return await self._tell(robot, message, now)
        signers = signing(await self.secrets.find(message.tenant), self.service_secret, now)
        headers = signed_headers(message, signers, now)
        return await self.fetcher.post(message.url, headers, message.body.encode(), Turn(message.tenant))

    async def _tell(self, robot: Robot, message: WebhookMessage, now: float) -> int:
        call = robot_call(robot, words_of(self.site, message.body), now)
        headers = {"content-type": "application/json; charset=utf-8"}
        answer = await self.fetcher.post_for(
            call.url, headers, call.body, _MAX_ANSWER_BYTES, Turn(message.tenant)
        )
        if (refusal := refusal_of(answer)) is not None:
            raise Unavailable(
                f"The {robot.kind} robot refused the message ({refusal}).", code="robot_refused"
            )
        return 200

    def _message_of(self, task: Task) -> WebhookMessage | None:
        if task.webhook_url is None:
            return None
        ended_at = task.finished_at or task.created_at
        video = video_of(task, self.retention_s, urls=self.urls, now=ended_at)
        body = webhook_body(f"video.{task.state}", ended_at, video)
        return WebhookMessage(f"evt_{task.id}", task.tenant, task.webhook_url, body)

    def _trace(
        self, delivery: Delivery, url: str, began: float, status: int | None, outcome: DeliveryOutcome
    ) -> None:
        if self.spans is None or not isinstance(delivery.of, Task):
            return
        host, failure = urlsplit(called_url(url)).hostname or "", outcome.value
        if outcome is DeliveryOutcome.DELIVERED:
            failure = None
        span = delivery_span(delivery.of, delivery.tries, host, began, self.now(), status, failure)
        if span is not None:
            self.spans.record(span)
