"""Workers over HTTP: they register with a worker key, then send heartbeats with a secret of their own; admins list, drain
and evict them. A worker is valid only as long as the key that it joined with.

A worker only calls out, so it works behind any NAT that lets it reach this URL. Its answer is held open until its
orders change, so that an order arrives at once.
"""

import hmac
import secrets
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Header, Request

from turnout.errors import Forbidden, InvalidRequest, TurnoutError, Unauthorized, no_such
from turnout.fleet.join_code_routes import JoinCode, JoiningDep, key_to_join_with
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.placement_rules import could_run
from turnout.fleet.worker_messages import (
    EVICTED,
    Draining,
    GpuTimeTakenBack,
    Heartbeat,
    Registered,
    Registration,
    WorkerEvicted,
    WorkerList,
    WorkerOrders,
    WorkerShown,
    replicas_shown,
)
from turnout.fleet.worker_rules import TUNNEL, Enrolment, OrderSheet, Standing, StoredHeartbeat
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.store.outbound import Outbound
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import GangId
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep
from turnout.tenants.caller import Caller
from turnout.tenants.key_rules import secret_digest
from turnout.tenants.turn_rules import turn_of_other
from turnout.tenants.usage_rules import day_of, this_month_and_last
from turnout.worker.relay_tokens import PROBE_PATH, probe_answer

HEARTBEAT_S = 2.0
_MAX_PROOF_BYTES = 256
_ADVICE = "Give a --public-url that gateways reach, or join with --tunnel if there is none."

router = APIRouter(tags=["workers"], responses=documented(401, 403, 500, 503))


@router.post(
    "/workers/register",
    responses=documented(400, 413, 415, 429),
    openapi_extra=json_body(Registration),
    summary="Join as a worker",
)
async def register(request: Request, joining: JoiningDep, gateway: GatewayDep, audit: AuditDep) -> Registered:
    """With a worker key, or with a join code: the answer has a key then."""
    body = await read_json(request, Registration)
    known = await gateway.stores.fleet.workers.enrolled(body.known_as) if body.known_as else None
    if known is not None and not _is_its_secret(known, body.secret or ""):
        raise Forbidden("That id belongs to another worker.", "known_as", "not_your_id")
    if known is None and body.known_as:
        await _refuse_evicted(gateway, body.known_as, body.secret or "")
    address = "" if body.url == TUNNEL else await _probe(gateway.workers.prober, body, joining)
    worker = known.id if known else WorkerId(f"w-{secrets.token_hex(6)}")
    secret = body.secret if known and body.secret else secrets.token_urlsafe(32)
    key, token = await key_to_join_with(joining, body, gateway, audit)
    await audit.record(key, AuditAction.WORKER_REGISTERED, worker, name=body.name, url=body.url)
    await gateway.stores.fleet.workers.enrol(
        Enrolment(worker, body.name, body.url, secret_digest(secret), key=key.id, address=address)
    )
    return Registered(id=worker, secret=secret, heartbeat_s=HEARTBEAT_S, key=token)


@router.post(
    "/workers/{worker_id}/heartbeat",
    responses=documented(400, 404, 413, 415, 429),
    openapi_extra=json_body(Heartbeat),
    summary="Tell a worker's state, hear its orders",
)
async def heartbeat(
    worker_id: str,
    request: Request,
    gateway: GatewayDep,
    authorization: Annotated[str | None, Header()] = None,
) -> WorkerOrders:
    enrolled = await identify_worker(gateway, worker_id, authorization)
    worker = enrolled.id
    body = await read_json(request, Heartbeat)
    beat = StoredHeartbeat(
        body.machine, body.replicas, body.seen, gpu_time=body.gpu_time, leaving=body.leaving
    )
    await gateway.stores.fleet.workers.heard(worker, beat)
    gateways = tuple(await gateway.stores.fleet.demand.gateways()) if enrolled.url == TUNNEL else ()
    async with gateway.revocations.workers.within(worker, evicted()):
        sheet = await gateway.stores.fleet.orders.get(worker)
        if sheet is None or sheet.version == body.seen:
            sheet = await gateway.stores.fleet.orders.wait(worker, body.seen, body.wait_s)
    sheet = sheet or OrderSheet(body.seen)
    tokens = {
        order.replica: gateway.videos.gangs.tokens.token(
            GangRight(worker, GangId(order.replica), order.model.name)
        )
        for order in sheet.orders
        if order.model.video is not None
    }
    return WorkerOrders(version=sheet.version, orders=sheet.orders, tokens=tokens, gateways=gateways)


@router.get("/workers", summary="List workers")
async def index(admin: AdminDep, gateway: GatewayDep) -> WorkerList:
    models, rules = await gateway.stores.fleet.models.all(), gateway.workers.gangs.rules
    enrolments = await gateway.stores.fleet.workers.enrolments()
    beats = await gateway.stores.fleet.workers.heartbeats(list(enrolments))
    sheets = {
        worker: await gateway.stores.fleet.orders.get(worker)
        for worker, beat in beats.items()
        if beat.reports
    }
    return WorkerList(
        data=[
            WorkerShown(
                id=worker,
                name=enrolment.name,
                url=enrolment.url,
                draining=enrolment.draining or (worker in beats and beats[worker].leaving),
                key=enrolment.key,
                standing=rules.standing(beats[worker].ago_s) if worker in beats else Standing.GONE,
                heard_ago_s=round(beats[worker].ago_s, 1) if worker in beats else None,
                machine=beats[worker].machine if worker in beats else None,
                replicas=replicas_shown(beats[worker], sheets.get(worker)) if worker in beats else (),
                could_run=could_run(models.values(), beats[worker].machine) if worker in beats else [],
            )
            for worker, enrolment in sorted(enrolments.items())
        ]
    )


@router.post(
    "/workers/{worker_id}/drain",
    responses=documented(400, 404, 413, 415),
    openapi_extra=json_body(Draining),
    summary="Take a worker out, or back in",
)
async def drain(
    worker_id: str, request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> Draining:
    body = await read_json(request, Draining)
    await audit.record(
        admin, AuditAction.WORKER_DRAINED, worker_id[:100], draining=str(body.draining).lower()
    )
    await gateway.stores.fleet.workers.set_draining(WorkerId(worker_id), body.draining)
    return body


@router.delete("/workers/{worker_id}", responses=documented(404), summary="Evict a worker")
async def evict(worker_id: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> WorkerEvicted:
    """Ends it at once: its id and secret are of no more use, and what it serves goes to others. Its key stays valid, unless it was
    made for this worker alone, by a join code."""
    worker = await gateway.stores.fleet.workers.enrolled(WorkerId(worker_id))
    if worker is None:
        raise no_such("worker", worker_id, "worker_id")
    await audit.record(admin, AuditAction.WORKER_EVICTED, worker.id, name=worker.name, key=worker.key)
    await gateway.revocations.evict(worker, f"by {admin.id}")
    key = await gateway.stores.tenants.keys.find(worker.key)
    if key is None or not key.for_one_worker:
        return WorkerEvicted(id=worker.id, key=worker.key)
    await audit.record(admin, AuditAction.KEY_REVOKED, key.id, tenant=key.tenant, role=key.role)
    await gateway.stores.tenants.keys.revoke(key.id)
    await gateway.revocations.revoked(key.id)
    return WorkerEvicted(id=worker.id, key=worker.key, key_revoked=True)


@router.delete("/workers/{worker_id}/gpu-time", summary="Take a worker's GPU time back")
async def take_gpu_time_back(
    worker_id: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> GpuTimeTakenBack:
    """Undoes what was booked for it in this month and the last, so that nobody pays for it. For a worker that counted what was
    not so: evict it first. It need not be there any more, and may be asked again."""
    worker = WorkerId(worker_id[:100])
    await audit.record(admin, AuditAction.WORKER_GPU_TIME_TAKEN_BACK, worker)
    months = this_month_and_last(day_of(gateway.now()))
    taken = await gateway.stores.tenants.usage.take_back(worker, months)
    return GpuTimeTakenBack(id=worker, seconds={model: ms / 1000 for model, ms in taken.items()})


async def _probe(prober: Outbound, body: Registration, joining: Caller | JoinCode) -> str:
    """Asks whoever answers at the URL to prove that it is the worker that registers; returns the address that it is at.
    Nothing secret is sent there, and of what it says only whether it is right is told."""
    url = body.url
    try:
        address = urlsplit(url)
        fine = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        address, fine = urlsplit(""), False
    if not fine or address.username or address.path.strip("/") or address.query or address.fragment:
        raise InvalidRequest(
            "url must be http(s)://host:port, as gateways reach this worker.", "url", "invalid_value"
        )
    nonce = secrets.token_hex(16)
    asked = f"{url.rstrip('/')}{PROBE_PATH}"
    try:
        whose = turn_of_other(joining.id if isinstance(joining, Caller) else joining.made_by)
        async with prober.getting(f"{asked}{nonce}", _MAX_PROOF_BYTES, whose) as (at, answer):
            pass
    except TurnoutError as err:
        raise InvalidRequest(
            f"The gateway tried {asked}…: {err} {_ADVICE}", "url", "worker_unreachable"
        ) from err
    if not hmac.compare_digest(answer, probe_answer(body.probe_key, nonce).encode()):
        raise InvalidRequest(
            f"The gateway tried {asked}…: something else than this worker answers there. {_ADVICE}",
            "url",
            "not_this_worker",
        )
    return at


async def identify_worker(gateway: Gateway, worker_id: str, authorization: str | None) -> Enrolment:
    """The worker that calls, by its own secret; raises Unauthorized, and Forbidden for one that was evicted."""
    enrolled = await gateway.stores.fleet.workers.enrolled(WorkerId(worker_id))
    scheme, _, shown = (authorization or "").partition(" ")
    secret = shown if scheme.lower() == "bearer" else ""
    if enrolled is None:
        await _refuse_evicted(gateway, WorkerId(worker_id), secret)
    if enrolled is None or not _is_its_secret(enrolled, secret) or not enrolled.key:
        raise Unauthorized("Register first: this is no worker's secret.", code="invalid_secret")
    if not await gateway.keys.is_valid(enrolled.key):
        await gateway.revocations.evict(enrolled, "its key is not valid any more")
        raise evicted()
    return enrolled


async def _refuse_evicted(gateway: Gateway, worker: WorkerId, secret: str) -> None:
    """Tells a worker that was evicted so, and nobody else."""
    known = await gateway.stores.fleet.workers.evicted(worker)
    if known is not None and _is_its_secret(known, secret):
        raise evicted()


def evicted() -> Forbidden:
    return Forbidden("This worker was evicted, or its key revoked.", code=EVICTED)


def _is_its_secret(worker: Enrolment, secret: str) -> bool:
    return hmac.compare_digest(worker.digest, secret_digest(secret))
