"""The gateway as one object: what handlers need, the loops that run beside them, and how it is put together.

Wiring chooses the stores and the network parts; `build_gateway` makes the rest. A gateway keeps no state of its own that
matters: any number of them may run side by side. Rooms (chat, videos, models, workers, operations) know each other only
through this object.
"""

import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from turnout import __version__
from turnout.background import BackgroundLoops
from turnout.chat.chat_admission import ChatAdmission, worker_of
from turnout.chat.chat_limits import ChatShares
from turnout.chat.chat_metrics import ChatMetrics
from turnout.chat.chat_usage import ChatUsage
from turnout.chat.demand_feed import DemandFeed
from turnout.chat.quota_accounts import Quotas
from turnout.chat.routes_feed import RoutesFeed
from turnout.chat.switchboard import Switchboard
from turnout.fleet.catalog import Catalog
from turnout.fleet.fleet_store import FleetStatus
from turnout.fleet.gang_list import GangList
from turnout.fleet.gang_reports import GangReports
from turnout.fleet.model_store import ModelStore
from turnout.fleet.route_table import DemandReports, RouteTable
from turnout.fleet.worker_store import OrderStore, WorkerStore
from turnout.relay import Relay, RelaySettings
from turnout.run.config import Config
from turnout.store.data_health import DataHealth
from turnout.store.dead_records import DeadRecords
from turnout.store.mutex import Mutex
from turnout.store.object_store import Blobs
from turnout.store.outbound import Outbound
from turnout.tasks.backlog import Backlog
from turnout.tasks.image_pool import ImagePool
from turnout.tasks.live_events import LiveEvents
from turnout.tasks.share_store import ShareStore
from turnout.tasks.signed_urls import UrlPurpose, UrlSigner
from turnout.tasks.submission import Submissions
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_log import TaskLog
from turnout.tasks.time_estimates import TimeEstimates
from turnout.tasks.wait_reasons import WaitReasons
from turnout.tasks.waiting_notes import WaitingNotes
from turnout.tasks.webhook_secret_store import WebhookSecretStore
from turnout.telemetry.exposition import counter
from turnout.telemetry.history import History
from turnout.telemetry.history_store import HistoryStore
from turnout.telemetry.metrics import Metrics, RequestFigures, SharedFigures
from turnout.telemetry.otlp import OtlpSpans
from turnout.telemetry.readiness import ReadinessCheck
from turnout.telemetry.request_tracer import RequestTracer
from turnout.telemetry.service_metrics import ServiceMetrics
from turnout.tenants.audit_log import AuditLog
from turnout.tenants.budget_checks import BudgetChecks
from turnout.tenants.budget_store import BudgetStore
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.key_store import KeyStore
from turnout.tenants.oidc import OidcLogins
from turnout.tenants.open_access import OpenAccess
from turnout.tenants.revocation import Revocations
from turnout.tenants.session_store import SessionStore
from turnout.tenants.usage_log import UsageLog
from turnout.worker.tunnel.gateway_end import GatewayTunnels


@dataclass(frozen=True, slots=True)
class GatewayStores:
    """What lasts longer than this process."""

    tasks: TaskLog
    events: TaskEvents
    backlog: Backlog
    keys: KeyStore
    sessions: SessionStore
    dead_records: DeadRecords
    history: HistoryStore
    audit: AuditLog
    webhook_secrets: WebhookSecretStore
    shares: ShareStore
    blobs: Blobs
    mutex: Mutex
    models: ModelStore
    workers: WorkerStore
    orders: OrderStore
    routes: RouteTable
    demand: DemandReports
    fleet_status: FleetStatus
    quotas: Quotas
    usage: UsageLog
    budgets: BudgetStore
    gangs: GangReports
    data: DataHealth
    spans: OtlpSpans | None = None


@dataclass(frozen=True, slots=True)
class Gateway:
    """`name` is new for each process. `prober` calls the addresses that workers say they have. `background` is everything
    that runs for as long as the gateway does."""

    name: str
    config: Config
    stores: GatewayStores
    now: Callable[[], float]
    keys: KeyRing
    revocations: Revocations
    catalog: Catalog
    budgets: BudgetChecks
    request_figures: RequestFigures
    metrics: Metrics
    background: BackgroundLoops
    readiness: ReadinessCheck
    gangs: GangList
    history: History
    tracer: RequestTracer | None
    # videos
    live: LiveEvents
    estimates: TimeEstimates
    wait_reasons: WaitReasons
    submissions: Submissions
    urls: UrlSigner
    # workers
    prober: Outbound
    tunnels: GatewayTunnels
    # chat
    switchboard: Switchboard
    routes: RoutesFeed
    shares: ChatShares
    chat_usage: ChatUsage
    relay: Relay


def build_gateway(
    config: Config,
    stores: GatewayStores,
    *,
    images: ImagePool,
    fetcher: Outbound,
    prober: Outbound,
    tunnels: GatewayTunnels,
    relay_settings: RelaySettings,
    tls: ssl.SSLContext | None,
    urls: UrlSigner,
    logins: OidcLogins | None = None,
    open_key: str | None = None,
    new_id: Callable[[], str],
    new_seed: Callable[[], int],
    disks: Callable[[], Mapping[str, tuple[int, int]]] = dict,
    certificate_expiry: Callable[[], float | None] = lambda: None,
) -> Gateway:
    """`fetcher` calls addresses that users name. `new_id` gives unique letters and digits that sort by time, `new_seed`
    a seed for a request without one. `urls` signs the same at all gateways. `tls` is for workers that are called over TLS.
    `logins` verifies the tokens of an issuer, if one is configured. `open_key` is the token that requests without a key count
    as having, in open mode. `disks` and `certificate_expiry` are for the metrics."""
    name = f"gw-{secrets.token_hex(6)}"
    open_access = OpenAccess(open_key, config.gateway.allowed_origins) if open_key else None
    keys = KeyRing(stores.keys, time.time, stores.data.check_data, logins, open_access)
    catalog = Catalog(stores.models, [model.name for model in config.served], time.monotonic)
    background = BackgroundLoops()
    gangs = GangList(stores.gangs, stores.workers, stores.orders, time.monotonic)
    request_figures = RequestFigures(time.time)
    estimates = TimeEstimates()
    switchboard = Switchboard(time.monotonic)
    routes = RoutesFeed(stores.routes, stores.models, stores.workers, switchboard, tunnels)
    shares = ChatShares(stores.quotas, name, config.chat.limits, time.monotonic)
    chat_usage = ChatUsage(stores.usage, name, time.time)
    chat_metrics = ChatMetrics(switchboard.demand)
    budgets = BudgetChecks(stores.budgets, config.costs.currency, time.time)
    tracer = None if stores.spans is None else RequestTracer(stores.spans, config.telemetry.traces_sample)
    if tracer is not None:  # a call names the request's own span instead of the caller's
        relay_settings = replace(relay_settings, forwarded=relay_settings.forwarded - {"traceparent"})
    admission = ChatAdmission(keys, shares, switchboard, routes, chat_usage, chat_metrics, budgets, tracer)
    relay = Relay(admission, relay_settings, tls)
    revocations = Revocations(keys, stores.workers, stores.shares, routes, relay, worker_of)
    demand = DemandFeed(name, stores.demand, switchboard, time.monotonic)
    wait_reasons = WaitReasons(stores.fleet_status, stores.gangs, catalog, time.monotonic)
    notes = WaitingNotes(stores.tasks, wait_reasons)
    observers = (request_figures.observe, estimates.observe)
    live = LiveEvents(
        stores.tasks,
        stores.events,
        notes,
        lambda task, at: urls.url(task, UrlPurpose.CONTENT, at),
        observers,
    )
    background.add("event tail", live.run)
    background.add("waiting notes", partial(notes.run, live.watchers))
    background.add("routes", routes.run)
    background.add("demand", demand.run)
    background.add("revocations", revocations.run)
    background.add("direct routes", admission.direct.run)
    background.add("chat limits", shares.run)
    background.add("chat usage", chat_usage.run)
    background.add("budgets", budgets.run)
    history = History(
        stores.history,
        stores.backlog,
        stores.fleet_status,
        stores.workers,
        stores.orders,
        lambda: {
            "step_seconds": request_figures.videos.step_totals(),
            "first_token_seconds": chat_metrics.first_totals(),
        },
        time.time,
    )
    background.add("history", history.run)
    return Gateway(
        name=name,
        config=config,
        stores=stores,
        now=time.time,
        keys=keys,
        revocations=revocations,
        catalog=catalog,
        budgets=budgets,
        request_figures=request_figures,
        metrics=Metrics(
            request_figures,
            ServiceMetrics(
                stores.data,
                stores.mutex,
                stores.events,
                background,
                relay,
                relay_settings.max_connections,
                live,
                disks,
                certificate_expiry,
                __version__,
            ),
            SharedFigures(
                request_figures.videos,
                stores.backlog,
                stores.dead_records,
                gangs,
                stores.fleet_status,
                catalog,
                config.costs.gpu_prices,
            ),
            (chat_metrics.text, budgets.text, partial(_dropped_spans, stores.spans)),
        ),
        background=background,
        readiness=ReadinessCheck(
            stores.data, stores.blobs, stores.mutex, background, switchboard.knows_routes, time.monotonic
        ),
        gangs=gangs,
        history=history,
        tracer=tracer,
        live=live,
        estimates=estimates,
        wait_reasons=wait_reasons,
        submissions=Submissions(
            settings=config.tasks,
            max_body_bytes=config.gateway.max_body_bytes,
            tasks=stores.tasks,
            blobs=stores.blobs,
            images=images,
            fetcher=fetcher,
            catalog=catalog,
            refusal=switchboard.refusal,
            budgets=budgets,
            now=time.time,
            new_id=new_id,
            new_seed=new_seed,
        ),
        urls=urls,
        prober=prober,
        tunnels=tunnels,
        switchboard=switchboard,
        routes=routes,
        shares=shares,
        chat_usage=chat_usage,
        relay=relay,
    )


def _dropped_spans(spans: OtlpSpans | None) -> str:
    dropped = 0 if spans is None else spans.dropped
    return counter("turnout_trace_spans_dropped_total", "Spans that no receiver took.", (), [((), dropped)])


async def gateway_of(conn: HTTPConnection) -> Gateway:
    """The only reader of `app.state`."""
    return cast(Gateway, conn.app.state.gateway)


GatewayDep = Annotated[Gateway, Depends(gateway_of)]
