"""Keys end: by their own date, by rotation, by revocation; at every gateway, and on the relay's path too."""

import time
from pathlib import Path

import httpx
import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, chatting, identified, recalled, running
from tests.relay.kit import echo
from tests.tenants.test_session_routes import OURS, log_in

from turnout.errors import Unauthorized
from turnout.tasks.task_rules import TenantId
from turnout.tenants.caller import caller_with
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.key_rules import OWN_ADMIN, OWN_WORKER, Role, mint, rotate


async def test_a_key_works_until_it_expires_and_not_a_moment_longer(stores: Stores) -> None:
    now = [1000.0]
    rings = [KeyRing(stores.tenants.keys, lambda: now[0]) for _ in range(2)]  # two gateways
    key, token = mint("k1", "s1", TenantId("acme"), Role.USER, "", now[0], expires_in_s=3)
    await stores.tenants.keys.add(key)
    for ring in rings:
        assert await identified(ring, token) == caller_with(key)
        assert recalled(ring, token) == caller_with(key)
    now[0] += 2.9
    assert all(recalled(ring, token) == caller_with(key) for ring in rings)
    now[0] += 0.1  # well within what is remembered of other keys
    for ring in rings:
        assert recalled(ring, token) is None
        with pytest.raises(Unauthorized) as refused:
            await identified(ring, token)
        assert refused.value.code == "expired_api_key"
        with pytest.raises(Unauthorized) as refused:  # who does not know the secret learns nothing of the key
            await identified(ring, f"{token}x")
        assert refused.value.code == "invalid_api_key"


async def test_an_admin_makes_a_key_that_ends(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    made = await gateway.http.post("/v1/keys", json={"tenant": "beta", "expires_in_s": 60}, headers=admin)
    shown = made.json()
    assert shown["expires_at"] - shown["created_at"] == 60
    assert (await gateway.http.get("/v1/videos", headers=bearer(shown["token"]))).status_code == 200
    for wrong in (0, -1, 10**12, "soon"):
        bad = await gateway.http.post("/v1/keys", json={"expires_in_s": wrong}, headers=admin)
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "expires_in_s")


async def test_both_keys_work_while_a_rotation_overlaps(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    old = (await gateway.http.post("/v1/keys", json={"tenant": "beta", "name": "ci"}, headers=admin)).json()
    turned = await gateway.http.post(f"/v1/keys/{old['id']}/rotate", json={"overlap_s": 3600}, headers=admin)
    new = turned.json()
    assert (new["replaces"], new["tenant"], new["role"], new["name"]) == (old["id"], "beta", "user", "ci")
    assert new["expires_at"] is None
    for token in (old["token"], new["token"]):
        assert (await gateway.http.get("/v1/videos", headers=bearer(token))).status_code == 200
    again = await gateway.http.post(f"/v1/keys/{old['id']}/rotate", json={"overlap_s": 0}, headers=admin)
    assert again.status_code == 200
    late = await gateway.http.get("/v1/videos", headers=bearer(old["token"]))
    assert (late.status_code, late.json()["error"]["code"]) == (401, "expired_api_key")
    for ended in (old["id"], "nobody"):
        gone = await gateway.http.post(f"/v1/keys/{ended}/rotate", json={}, headers=admin)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "key_not_found")
    user = await gateway.http.post(f"/v1/keys/{new['id']}/rotate", json={}, headers=bearer(new["token"]))
    assert user.status_code == 403


def test_a_rotated_key_lives_as_long_as_the_old_one_was_to_and_never_prolongs_it() -> None:
    old, _ = mint("k1", "s1", TenantId("acme"), Role.WORKER, "gpu", 1000, expires_in_s=100)
    new, _, ending = rotate(old, "k2", "s2", 1050, overlap_s=500, expires_in_s=None)
    assert (new.expires_at, new.role, ending.expires_at) == (1150, Role.WORKER, 1100)
    new, _, ending = rotate(old, "k3", "s3", 1050, overlap_s=10, expires_in_s=7)
    assert (new.expires_at, ending.expires_at) == (1057, 1060)


async def test_the_relay_refuses_a_key_that_has_expired(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat:
        await chat.replica(echo)
        key, token = mint("short", "s1", TenantId("acme"), Role.USER, "", time.time(), expires_in_s=3600)
        await stores.tenants.keys.add(key)
        body = {"model": "m", "messages": [{}]}
        async with httpx.AsyncClient(base_url=chat.base, headers=bearer(token), timeout=30) as client:
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            _, _, ended = rotate(key, "next", "s2", time.time(), overlap_s=0, expires_in_s=None)
            await stores.tenants.keys.add(ended)
            chat.gateway.inside.keys.drop("short")  # as the gateway does that ended it
            late = await client.post("/v1/chat/completions", json=body)
            assert (late.status_code, late.json()["error"]["code"]) == (401, "expired_api_key")


async def test_the_ring_tells_which_keys_have_ended(stores: Stores) -> None:
    now = [1000.0]
    ring = KeyRing(stores.tenants.keys, lambda: now[0])
    good, revoked, short, rotated = (
        mint(f"k{n}", "s", TenantId("acme"), Role.USER, "", 1000, expires_in_s=60 if n == 2 else None)[0]
        for n in range(4)
    )
    await stores.tenants.keys.add(good, revoked, short, rotated)
    everyone = [key.id for key in (good, revoked, short, rotated)]

    async def ended() -> set[str]:
        return {key_id for key_id, key in (await ring.as_they_are(everyone)).items() if key is None}

    assert await ended() == set()
    await stores.tenants.keys.revoke(revoked.id)
    await stores.tenants.keys.add(rotate(rotated, "k9", "s", now[0], overlap_s=60, expires_in_s=None)[2])
    assert await ended() == {"k1"}
    now[0] += 60
    assert await ended() == {"k1", "k2", "k3"}


@pytest.mark.parametrize(
    ("role", "status"), [(None, 401), (Role.USER, 403), (Role.METRICS, 200), (Role.ADMIN, 200)]
)
async def test_metrics_need_a_key_where_it_is_set(
    stores: Stores, tmp_path: Path, role: Role | None, status: int
) -> None:
    async with running(stores, tmp_path, metrics_auth=True) as gateway:
        del gateway.http.headers["authorization"]
        headers = {} if role is None else bearer(await gateway.key("ops", role))
        assert (await gateway.http.get("/metrics", headers=headers)).status_code == status


async def test_a_key_for_metrics_opens_nothing_else(gateway: Gateway) -> None:
    scraper = bearer(await gateway.key("ops", Role.METRICS))
    for path in ("/v1/videos", "/v1/models", "/v1/keys", "/workers", "/v1/usage"):
        assert (await gateway.http.get(path, headers=scraper)).status_code == 403, path


async def test_a_key_that_is_in_use_is_not_revoked_by_chance(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    own = admin["authorization"].removeprefix("Bearer tk-").partition(".")[0]
    ups, _ = mint("ups", "s", TenantId("default"), Role.ADMIN, OWN_ADMIN, time.time())
    workers, _ = mint("workers", "s", TenantId("default"), Role.WORKER, OWN_WORKER, time.time())
    await gateway.stores.tenants.keys.add(ups, workers)
    for key_id in (ups.id, workers.id, own):
        refused = await gateway.http.delete(f"/v1/keys/{key_id}", headers=admin)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "key_in_use")
    await log_in(gateway, admin["authorization"].removeprefix("Bearer "))
    from_the_page = await gateway.http.delete(f"/v1/keys/{own}", headers=OURS)
    assert from_the_page.status_code == 409, "the session lives with that key"
    for key_id in (ups.id, workers.id, own):
        done = await gateway.http.delete(f"/v1/keys/{key_id}", params={"in_use": True}, headers=admin)
        assert done.status_code == 200
