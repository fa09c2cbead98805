"""Puts a gateway together from the configuration, the stores and what reaches outside."""

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from turnout import __version__
from turnout.background import BackgroundLoops
from turnout.chat.chat_admission import ChatAdmission, ChatBounds, worker_of
from turnout.chat.chat_limits import ChatShares
from turnout.chat.chat_metrics import ChatMetrics
from turnout.chat.chat_usage import ChatUsage
from turnout.chat.demand_feed import DemandFeed
from turnout.chat.routes_feed import RoutesFeed
from turnout.chat.silent_workers import SilentWorkers
from turnout.chat.switchboard import Switchboard
from turnout.fleet.catalog import Catalog
from turnout.fleet.gang_list import GangList
from turnout.fleet.gang_reports import GangReports
from turnout.fleet.pull_runner import ModelPulls, checks
from turnout.fleet.pull_store import PullStore
from turnout.gateway.gateway import (
    ChatParts,
    Gateway,
    PeopleParts,
    TelemetryParts,
    VideoParts,
    WorkerParts,
)
from turnout.people.oidc_flow import OidcFlow
from turnout.people.site import open_site
from turnout.relay import Relay, RelaySettings
from turnout.run.config import Config
from turnout.store.outbound import Outbound
from turnout.stores import Stores
from turnout.tasks.arrivals import Arrivals
from turnout.tasks.content_check import ContentCheck
from turnout.tasks.gang_access import GangAccess
from turnout.tasks.gang_tokens import GangTokens
from turnout.tasks.image_pool import ImagePool
from turnout.tasks.label_store import LabelStore
from turnout.tasks.live_events import LiveEvents
from turnout.tasks.pace_store import PaceStore
from turnout.tasks.prompt_rewriter import PromptRewriter
from turnout.tasks.signed_urls import UrlPurpose, UrlSigner
from turnout.tasks.submission import Submissions
from turnout.tasks.time_estimates import PaceParts, TimeEstimates
from turnout.tasks.wait_reasons import WaitReasons
from turnout.tasks.waiting_notes import WaitingNotes
from turnout.telemetry.history import History
from turnout.telemetry.history_store import HistoryStore
from turnout.telemetry.metric_table import SPANS_DROPPED
from turnout.telemetry.metrics import Metrics, RequestFigures, SharedFigures
from turnout.telemetry.otlp import OtlpSpans
from turnout.telemetry.readiness import ReadinessCheck
from turnout.telemetry.request_tracer import RequestTracer
from turnout.telemetry.service_metrics import ServiceMetrics
from turnout.tenants.budget_checks import BudgetChecks
from turnout.tenants.caller import Caller
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.oidc import OidcLogins
from turnout.tenants.open_access import OpenAccess
from turnout.tenants.open_connections import OpenConnections
from turnout.tenants.revocation import Revocations
from turnout.worker.tunnel.gateway_end import GatewayTunnels


@dataclass(frozen=True, slots=True)
class GatewayOutside:
    """What differs between a process, Ray and a test. `fetcher` calls addresses that users name, `prober` those of workers.
    `new_id` gives unique letters and digits that sort by time, `new_seed` a seed for a request without one. `urls` signs the
    same at all gateways. `tls` is for workers that are called over TLS. `logins` verifies the tokens of an issuer, if one is
    configured. `open_key` is the token that requests without a key count as having, in open mode. `gangs` says who tells of
    gangs, if it is not the store. `disks` and `certificate_expiry` are for the metrics."""

    fetcher: Outbound
    prober: Outbound
    relay: RelaySettings
    urls: UrlSigner
    new_id: Callable[[], str]
    new_seed: Callable[[], int]
    tls: ssl.SSLContext | None = None
    logins: OidcLogins | None = None
    open_key: str | None = None
    gangs: GangReports | None = None
    disks: Callable[[], Mapping[str, tuple[int, int]]] = dict
    certificate_expiry: Callable[[], float | None] = lambda: None


def build_gateway(config: Config, stores: Stores, outside: GatewayOutside) -> Gateway:
    return _Builder(config, stores, outside).gateway()


class _Builder:
    """Makes first what several parts share, then the parts. Each adds its own loops."""

    def __init__(self, config: Config, stores: Stores, outside: GatewayOutside) -> None:
        self._config = config
        self._stores = stores
        self._outside = outside
        self._name = f"gw-{secrets.token_hex(6)}"
        self._background = BackgroundLoops()
        open_key, origins = outside.open_key, config.gateway.allowed_origins
        open_access = OpenAccess(open_key, origins) if open_key else None
        by_token = config.access.oidc is not None and config.access.oidc.audience != ""
        self._keys = KeyRing(
            stores.tenants.keys,
            time.time,
            stores.data.check_data,
            outside.logins if by_token else None,
            open_access,
        )
        self._catalog = Catalog(stores.fleet.models, [model.name for model in config.models], time.monotonic)
        self._budgets = BudgetChecks(stores.tenants.budgets, config.costs.currency, time.time)
        self._background.add("budgets", self._budgets.run)
        sample = config.telemetry.traces_sample
        self._tracer = None if stores.spans is None else RequestTracer(stores.spans, sample)
        self._figures = RequestFigures(time.time)
        self._gang_reports = outside.gangs or stores.fleet.gangs

    def gateway(self) -> Gateway:
        stores, config = self._stores, self._config
        fleet, rules = stores.fleet, config.fleet.rules
        gangs = GangList(self._gang_reports, fleet.workers, fleet.orders, rules, time.monotonic)
        workers = WorkerParts(
            gangs,
            self._outside.prober,
            GatewayTunnels(),
            config.worker.allow_registered_commands,
            self._pulls(),
        )
        chat = self._chat(workers.tunnels)
        revocations = Revocations(
            self._keys, stores.fleet.workers, stores.share_links, chat.routes, chat.relay, worker_of
        )
        self._background.add("revocations", revocations.run)
        videos = self._videos(chat, revocations.callers)
        return Gateway(
            name=self._name,
            settings=config.gateway,
            stores=stores,
            now=time.time,
            background=self._background,
            catalog=self._catalog,
            keys=self._keys,
            revocations=revocations,
            budgets=self._budgets,
            costs=config.costs,
            videos=videos,
            chat=chat,
            workers=workers,
            people=PeopleParts(self._oidc(), config.access.guests, open_site(config.access.site)),
            telemetry=self._telemetry(chat, videos, workers),
        )

    def _pulls(self) -> ModelPulls | None:
        if not self._config.worker.model_pulls:
            return None
        stores = self._stores
        pulls = ModelPulls(
            PullStore(stores.link), stores.mutex, self._config.state_dir, self._name, time.time, checks()
        )
        self._background.add("model pulls", pulls.run)
        return pulls

    def _check(self) -> ContentCheck | None:
        tasks = self._config.tasks
        if tasks.content_check is None:
            return None
        return ContentCheck(
            tasks.content_check, tasks.content_check_token, self._outside.prober, self._stores.blobs
        )

    def _oidc(self) -> OidcFlow | None:
        """Raises Misconfigured."""
        access, logins = self._config.access, self._outside.logins
        if access.oidc is None or access.oidc.client_id is None or logins is None:
            return None
        return OidcFlow(
            access.oidc,
            access.oidc_client_secret,
            logins,
            self._outside.prober,
            self._stores.tenants.login_flows,
            self._config.gateway.public_url,
        )

    def _chat(self, tunnels: GatewayTunnels) -> ChatParts:
        stores, add = self._stores, self._background.add
        switchboard = Switchboard(time.monotonic)
        routes = RoutesFeed(
            stores.fleet.routes, stores.fleet.models, stores.fleet.workers, switchboard, tunnels
        )
        shares = ChatShares(stores.tenants.quotas, self._name, self._config.chat.limits, time.monotonic)
        usage = ChatUsage(stores.tenants.usage, self._name, time.time)
        metrics = ChatMetrics(switchboard.demand)
        bounds = ChatBounds(shares, self._budgets, stores.tenants.allowances)
        admission = ChatAdmission(self._keys, bounds, switchboard, routes, usage, metrics, self._tracer)
        settings = self._outside.relay
        if self._tracer is not None:  # a call names the request's own span instead of the caller's
            settings = replace(settings, forwarded=settings.forwarded - {"traceparent"})
        demand = DemandFeed(self._name, stores.fleet.demand, switchboard, time.monotonic)
        add("routes", routes.run)
        add("demand", demand.run)
        add("direct routes", admission.direct.run)
        add("chat limits", shares.run)
        add("chat usage", usage.run)
        relay = Relay(admission, settings, self._outside.tls)
        add("silent workers", SilentWorkers(relay, routes.suspects, routes.heard, worker_of).run)
        keep = self._config.chat.keep_conversations
        return ChatParts(switchboard, routes, shares, usage, metrics, relay, keep)

    def _rewriter(self, relay: Relay) -> PromptRewriter | None:
        tasks = self._config.tasks
        if tasks.prompt_model is None:
            return None
        return PromptRewriter(tasks.prompt_model, tasks.prompt_deadline_s, relay, self._catalog)

    def _videos(self, chat: ChatParts, callers: OpenConnections[Caller]) -> VideoParts:
        stores, outside, settings = self._stores, self._outside, self._config.tasks
        reasons = WaitReasons(stores.fleet.status, self._gang_reports, self._catalog, time.monotonic)
        estimates = TimeEstimates(
            PaceParts(
                PaceStore(stores.link), stores.tasks, stores.events, stores.backlog, reasons, self._catalog
            )
        )
        notes = WaitingNotes(
            stores.tasks, reasons, lambda task, place: estimates.of_task(task, place, time.time())
        )
        live = LiveEvents(
            stores.tasks,
            stores.events,
            notes,
            lambda task, at: outside.urls.url(task, UrlPurpose.CONTENT, at),
            (self._figures.observe,),
        )
        self._background.add("event tail", live.run)
        self._background.add("waiting notes", partial(notes.run, live.watchers))
        submissions = Submissions(
            settings=settings,
            max_body_bytes=self._config.gateway.max_body_bytes,
            tasks=stores.tasks,
            blobs=stores.blobs,
            images=ImagePool(settings.max_image_pixels),
            fetcher=outside.fetcher,
            catalog=self._catalog,
            refusal=chat.routes.refusal,
            budgets=self._budgets,
            callers=callers,
            check=self._check(),
            rewriter=self._rewriter(chat.relay),
            now=time.time,
            new_id=outside.new_id,
            new_seed=outside.new_seed,
        )
        gangs = GangAccess(
            GangTokens(outside.urls.secret), stores.fleet.workers, stores.fleet.orders, self._keys, time.time
        )
        arrivals = Arrivals(stores.link)
        self._background.add("arrivals", arrivals.run)
        labels = LabelStore(stores.link, stores.tasks)
        return VideoParts(
            settings, live, estimates, reasons, submissions, outside.urls, gangs, arrivals, labels
        )

    def _telemetry(self, chat: ChatParts, videos: VideoParts, workers: WorkerParts) -> TelemetryParts:
        stores, figures = self._stores, self._figures
        history = History(
            HistoryStore(stores.link),
            stores.backlog,
            stores.fleet.status,
            stores.fleet.workers,
            stores.fleet.orders,
            lambda: {
                "step_seconds": figures.videos.step_totals(),
                "first_token_seconds": chat.metrics.first_totals(),
            },
            time.time,
        )
        self._background.add("history", history.run)
        service = ServiceMetrics(
            stores.data,
            stores.mutex,
            stores.events,
            self._background,
            chat.relay,
            self._outside.relay.client.max_connections,
            videos.live,
            self._outside.disks,
            self._outside.certificate_expiry,
            __version__,
        )
        shared = SharedFigures(
            figures.videos,
            stores.backlog,
            stores.dead_records,
            workers.gangs,
            stores.fleet.status,
            self._catalog,
            self._config.costs.gpu_prices,
        )
        texts = (chat.metrics.text, self._budgets.text, partial(_dropped_spans, stores.spans))
        readiness = ReadinessCheck(
            stores.data,
            stores.blobs,
            stores.mutex,
            self._background,
            chat.switchboard.knows_routes,
            time.monotonic,
        )
        metrics = Metrics(figures, service, shared, texts)
        auth = self._config.telemetry.metrics_auth
        return TelemetryParts(
            figures, metrics, readiness, history, self._tracer, auth, self._config.state_dir, asyncio.Lock()
        )


def _dropped_spans(spans: OtlpSpans | None) -> str:
    return SPANS_DROPPED.one(0 if spans is None else spans.dropped)
