"""Workers over HTTP: they register with a worker key, then beat with a secret of their own; admins list and drain.

A worker only calls out, so it works behind any NAT that lets it reach this URL. Its answer is held open until its
orders change, so that an order arrives at once.
"""

import hashlib
import hmac
import secrets
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Header, Request

from turnout.domain.errors import Forbidden, InvalidRequest, NotFound, Unauthorized
from turnout.domain.serving import Beat, Enrolment, OrderSheet, WorkerId
from turnout.gateway.auth import AdminDep, WorkerDep
from turnout.gateway.bodies import read_json
from turnout.gateway.parts import PartsDep
from turnout.gateway.problems import documented
from turnout.observe import get_log
from turnout.wire.agent import (
    Draining,
    Heartbeat,
    Order,
    Orders,
    Registered,
    Registration,
    WorkerList,
    WorkerShown,
)
from turnout.wire.openai import schema_of

HEARTBEAT_S = 2.0

router = APIRouter(tags=["workers"], responses=documented(401, 403, 500, 503))


def _body_of(model: type[Registration | Heartbeat | Draining]) -> dict[str, object]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(model)}}}}


@router.post(
    "/workers/register",
    responses=documented(400, 413, 415),
    openapi_extra=_body_of(Registration),
    summary="Join as a worker",
)
async def register(request: Request, key: WorkerDep, parts: PartsDep) -> Registered:
    body = await read_json(request, Registration)
    address = urlsplit(body.url)
    if address.scheme not in ("http", "https") or not address.hostname or address.username:
        raise InvalidRequest("url must be an http(s) URL that gateways can reach.", "url", "invalid_value")
    known = await parts.registry.enrolled(body.known_as) if body.known_as else None
    if known is not None and not _is_its_secret(known, body.secret or ""):
        raise Forbidden("That id belongs to another worker.", "known_as", "not_your_id")
    worker = known.id if known else WorkerId(f"w-{secrets.token_hex(6)}")
    secret = body.secret if known and body.secret else secrets.token_urlsafe(32)
    await parts.registry.enrol(Enrolment(worker, body.name, body.url, _digest(secret)))
    get_log().info("worker registered", worker=worker, name=body.name, url=body.url, by=key.id)
    return Registered(id=worker, secret=secret, heartbeat_s=HEARTBEAT_S)


@router.post(
    "/workers/{worker_id}/heartbeat",
    responses=documented(400, 404, 413, 415),
    openapi_extra=_body_of(Heartbeat),
    summary="Tell a worker's state, hear its orders",
)
async def heartbeat(
    worker_id: str,
    request: Request,
    parts: PartsDep,
    authorization: Annotated[str | None, Header()] = None,
) -> Orders:
    worker = WorkerId(worker_id)
    enrolled = await parts.registry.enrolled(worker)
    _, _, shown = (authorization or "").partition(" ")
    if enrolled is None or not _is_its_secret(enrolled, shown):
        raise Unauthorized("Register first: this is no worker's secret.", code="invalid_secret")
    body = await read_json(request, Heartbeat)
    await parts.registry.heard(worker, Beat(body.machine, body.replicas, body.seen))
    sheet = await parts.registry.orders(worker)
    if sheet is None or sheet.version == body.seen:
        sheet = await parts.registry.wait_orders(worker, body.seen, body.wait_s)
    return _orders(sheet) if sheet else Orders(version=body.seen, orders=())


@router.get("/workers", summary="List workers")
async def index(admin: AdminDep, parts: PartsDep) -> WorkerList:
    enrolments = await parts.registry.enrolments()
    beats = await parts.registry.beats(list(enrolments))
    return WorkerList(
        data=[
            WorkerShown(
                id=worker,
                name=enrolment.name,
                url=enrolment.url,
                draining=enrolment.draining,
                machine=beats[worker].machine if worker in beats else None,
                replicas=beats[worker].reports if worker in beats else (),
            )
            for worker, enrolment in sorted(enrolments.items())
        ]
    )


@router.post(
    "/workers/{worker_id}/drain",
    responses=documented(400, 404, 413, 415),
    openapi_extra=_body_of(Draining),
    summary="Take a worker out, or back in",
)
async def drain(worker_id: str, request: Request, admin: AdminDep, parts: PartsDep) -> Draining:
    body = await read_json(request, Draining)
    try:
        await parts.registry.set_draining(WorkerId(worker_id), body.draining)
    except NotFound as err:
        raise NotFound(f"There is no worker {worker_id[:100]}.", "worker_id", "worker_not_found") from err
    get_log().info("worker drained", worker=worker_id, draining=body.draining, by=admin.id)
    return body


def _orders(sheet: OrderSheet) -> Orders:
    # A closing replica takes nothing new from gateways; to its worker it is still wanted as it is.
    orders = (Order(replica=a.replica, model=a.model, gpus=a.gpus, want=a.want) for a in sheet.assignments)
    return Orders(version=sheet.version, orders=tuple(orders))


def _is_its_secret(worker: Enrolment, secret: str) -> bool:
    return hmac.compare_digest(worker.digest, _digest(secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
