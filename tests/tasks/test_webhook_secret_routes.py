"""Who may replace whose webhook secret, and who sees it."""

import asyncio

from tests.gateways import Gateway, bearer

from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import Role

PATH = "/v1/webhooks/secret"


async def test_a_tenants_keys_replace_its_own_secret_and_admins_any(gateway: Gateway) -> None:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    own = await gateway.http.post(PATH, json={})
    assert (own.status_code, own.json()["tenant"]) == (200, "acme")
    assert own.json()["old_until"] - own.json()["created_at"] == 86_400
    foreign = await gateway.http.post(PATH, json={"tenant": "beta"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "role_not_allowed")
    for_beta = await gateway.http.post(PATH, json={"tenant": "beta"}, headers=admin)
    assert (for_beta.status_code, for_beta.json()["tenant"]) == (200, "beta")
    for role in (Role.WORKER, Role.METRICS):
        refused = await gateway.http.post(PATH, json={}, headers=bearer(await gateway.key("acme", role)))
        assert refused.status_code == 403
    for body in ({"overlap_s": -1}, {"overlap_s": 10**9}, {"tenant": "a:b"}, {"tenant": ""}, {"secret": "x"}):
        assert (await gateway.http.post(PATH, json=body)).status_code == 400

    log = await gateway.http.get("/v1/audit", headers=admin)
    entries = log.json()["data"]
    assert [(e["action"], e["target"]) for e in entries] == [
        ("webhook_secret.rotated", "beta"),
        ("webhook_secret.rotated", "acme"),
    ]
    assert own.json()["secret"] not in log.text


async def test_of_rotations_at_the_same_moment_no_answer_has_a_secret_that_never_signs(
    gateway: Gateway,
) -> None:
    answers = await asyncio.gather(*(gateway.http.post(PATH, json={}) for _ in range(5)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    shown = {answer.json()["secret"] for answer in answers if answer.status_code == 200}
    for_acme = await gateway.inside.stores.webhook_secrets.find(TenantId("acme"))
    assert for_acme is not None
    assert shown == {for_acme.current, *(old.secret for old in for_acme.old if old.secret)}
