"""Pulling models over HTTP, for admins: the catalogue, a verdict before, and pulls with their progress."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from fastapi import APIRouter, Request

from turnout.engines.wan.builtin import pulled
from turnout.errors import Conflict, InvalidRequest, no_such
from turnout.fleet.catalogue import catalogue
from turnout.fleet.pull_json import (
    CatalogueEntry,
    CatalogueList,
    PullList,
    PullRequest,
    PullShown,
    PullVerdict,
)
from turnout.fleet.pull_rules import MAX_PULLS, ModelPull, PullState, pull_id
from turnout.fleet.pull_runner import ModelPulls
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep
from turnout.validation import shown_as

router = APIRouter(tags=["models"], responses=documented(400, 401, 403, 409, 500, 503))


@router.get("/v1/catalogue", summary="Models that can be pulled by name")
async def index_catalogue(admin: AdminDep) -> CatalogueList:
    return CatalogueList(
        data=[
            CatalogueEntry(
                name=name,
                repo=one.repo,
                gigabytes=one.gigabytes,
                about=dict(one.about),
                engine=str(one.register["engine"]),
                vision=bool(one.register.get("vision")),
            )
            for name, one in catalogue().models.items()
        ]
    )


@router.get("/v1/pulls", summary="Models that are, or were, pulled onto this machine")
async def index(admin: AdminDep, gateway: GatewayDep) -> PullList:
    pulls = gateway.workers.pulls
    if pulls is None:
        return PullList(offered=False, free_bytes=0, data=[])
    free = await asyncio.to_thread(_free_bytes, pulls.state_dir)
    found = await pulls.store.all()
    return PullList(offered=True, free_bytes=free, data=[_shown(pulls, one) for one in found])


@router.post(
    "/v1/pulls/check",
    responses=documented(413, 415),
    openapi_extra=json_body(PullRequest),
    summary="Whether this machine could run a model",
)
async def check(request: Request, admin: AdminDep, gateway: GatewayDep) -> PullVerdict:
    """Reads the headers of its files at the hub, and none of its weights."""
    pulls = _offered(gateway)
    wish = _wish(await read_json(request, PullRequest), admin.id, gateway.now())
    said = await pulls.check(wish)
    return PullVerdict(
        repo=wish.repo,
        hub=wish.hub,
        fits=said.get("fits"),
        words=str(said.get("words", "")),
        parts=said.get("parts", []),
        download_bytes=int(said.get("download_bytes", 0)),
        free_bytes=await asyncio.to_thread(_free_bytes, pulls.state_dir),
    )


@router.post(
    "/v1/pulls",
    responses=documented(409, 413, 415),
    openapi_extra=json_body(PullRequest),
    summary="Pull a model onto this machine",
)
async def start(request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> PullShown:
    """One that broke off, or was cancelled, goes on where it was."""
    pulls = _offered(gateway)
    wish = _wish(await read_json(request, PullRequest), admin.id, gateway.now())
    known = await pulls.store.find(wish.id)
    if known is not None and not known.over:
        return _shown(pulls, known)
    await audit.record(admin, AuditAction.MODEL_PULLED, wish.repo, hub=wish.hub)
    if not await pulls.store.put(wish):
        raise Conflict(f"There are {MAX_PULLS} pulls: forget one.", code="too_many_pulls")
    return _shown(pulls, wish)


@router.delete(
    "/v1/pulls/{pull_id}", responses=documented(404), summary="Cancel a pull, or forget one that ended"
)
async def stop(pull_id: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> PullShown:
    """Files that are here stay."""
    pulls = _offered(gateway)
    pull = await pulls.store.find(pull_id)
    if pull is None:
        raise no_such("pull", pull_id, "pull_id")
    if pull.over:
        await pulls.store.forget(pull.id)
        return _shown(pulls, pull)
    await audit.record(admin, AuditAction.MODEL_PULL_CANCELLED, pull.repo, hub=pull.hub)
    cancelled = replace(pull, state=PullState.CANCELLED, ended_at=gateway.now())
    await pulls.store.put(cancelled)
    return _shown(pulls, cancelled)


def _offered(gateway: Gateway) -> ModelPulls:
    if gateway.workers.pulls is None:
        raise Conflict("Models are pulled here only under `turnout up`.", code="pulls_not_offered")
    return gateway.workers.pulls


def _wish(body: PullRequest, by: str, now: float) -> ModelPull:
    if (body.name is None) == (body.repo is None):
        raise InvalidRequest("Give a name of the catalogue, or a repo.", "name", "invalid_value")
    if body.repo is not None:
        known = next((name for name, one in catalogue().models.items() if one.repo == body.repo), None)
        include = catalogue().models[known].include if known else ()
        return ModelPull(pull_id(body.hub, body.repo), body.hub, body.repo, now, by, known, include)
    one = catalogue().named(body.name or "")
    if one is None:
        raise no_such("catalogue model", body.name or "", "name")
    return ModelPull(pull_id(body.hub, one.repo), body.hub, one.repo, now, by, body.name, one.include)


def _shown(pulls: ModelPulls, pull: ModelPull) -> PullShown:
    folder = pulled(pull.repo, pulls.state_dir / "models")
    one = catalogue().named(pull.name) if pull.name else None
    register_as = one.declaration(pull.name or "", folder) if one else None
    return shown_as(PullShown, pull, folder=str(folder), register_as=register_as)


def _free_bytes(state_dir: Path) -> int:
    return shutil.disk_usage(state_dir).free
