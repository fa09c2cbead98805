"""A machine joins by a one-time code and gets a worker key of its own, which ends with that worker."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import Stores
from tests.fleet.test_probe import MACHINE, answering
from tests.gateways import Gateway, bearer, running

from turnout.fleet.join_code_rules import is_join_code, join_command, key_by_code, new_join_code
from turnout.store.address_rules import reachable_url
from turnout.tenants.key_rules import Role, matches

CODES = "/workers/join-codes"
BEAT = {"machine": MACHINE, "replicas": []}


async def make_code(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    answer = await gateway.http.post(CODES, json=fields, headers=admin)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def join(
    gateway: Gateway, token: str, url: str = "tunnel:", probe_key: str = "k" * 32
) -> httpx.Response:
    body = {"name": "box", "url": url, "machine": MACHINE, "probe_key": probe_key}
    return await gateway.http.post("/workers/register", json=body, headers=bearer(token))


def refused(answer: httpx.Response, code: str = "invalid_code") -> bool:
    return (answer.status_code, answer.json()["error"]["code"]) == (401, code)


async def test_a_code_lets_one_machine_join_and_gives_it_a_key_of_its_own(gateway: Gateway) -> None:
    made = await make_code(gateway)
    joined = await join(gateway, made["code"])
    assert joined.status_code == 200, joined.text
    told = joined.json()
    assert (
        await gateway.http.post(f"/workers/{told['id']}/heartbeat", json=BEAT, headers=bearer(told["secret"]))
    ).status_code == 200
    enrolled = await gateway.stores.fleet.workers.enrolled(told["id"])
    assert enrolled is not None and told["key"].startswith(f"tk-{enrolled.key}.")
    again = await join(gateway, told["key"])  # as it does after a restart
    assert again.status_code == 200 and again.json()["key"] is None
    for path in ("/v1/models", "/v1/keys", "/workers"):
        assert (await gateway.http.get(path, headers=bearer(told["key"]))).status_code == 403
    assert refused(await join(gateway, made["code"], probe_key="o" * 32)), "a code works once"


async def test_a_machine_that_missed_the_answer_gets_the_same_key_again(gateway: Gateway) -> None:
    made = await make_code(gateway)
    first, second = await join(gateway, made["code"]), await join(gateway, made["code"])
    assert first.json()["key"] == second.json()["key"]


async def test_a_machine_that_was_evicted_does_not_come_back_by_its_code(gateway: Gateway) -> None:
    """Its key was made of the code: to ask again made it anew."""
    made = await make_code(gateway)
    worker = (await join(gateway, made["code"])).json()["id"]
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    assert (await gateway.http.delete(f"/workers/{worker}", headers=admin)).json()["key_revoked"]
    assert refused(await join(gateway, made["code"]))
    assert await gateway.stores.fleet.workers.enrolments() == {}


async def test_codes_that_never_were_or_ended_are_refused_and_throttled(
    gateway: Gateway, stores: Stores
) -> None:
    made = await make_code(gateway)
    for name in [name async for name in stores.link.client.scan_iter("*:join:*")]:
        assert 0 < await stores.link.client.ttl(name) <= 900
        await stores.link.client.delete(name)  # it expired
    assert refused(await join(gateway, made["code"]))
    answers = [await join(gateway, "jc-" + "x" * 43) for _ in range(20)]
    assert refused(answers[0]) and answers[-1].status_code == 429
    assert (await join(gateway, (await make_code(gateway))["code"])).status_code == 200


async def test_a_code_ends_with_the_key_that_made_it(gateway: Gateway, stores: Stores) -> None:
    admin = await gateway.key("ops", Role.ADMIN)
    made = (await gateway.http.post(CODES, json={}, headers=bearer(admin))).json()
    key_id = admin.removeprefix("tk-").partition(".")[0]
    await stores.tenants.keys.revoke(key_id)
    gateway.inside.keys.drop(key_id)
    assert refused(await join(gateway, made["code"]))


async def test_only_an_admin_makes_codes_and_nothing_keeps_them(
    gateway: Gateway, stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    for role in (Role.USER, Role.WORKER, Role.METRICS):
        headers = bearer(await gateway.key(role=role))
        assert (await gateway.http.post(CODES, json={}, headers=headers)).status_code == 403
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    for wrong in ({"expires_in_s": 1}, {"expires_in_s": 86_401}, {"url": "file:///x"}, {"more": 1}):
        assert (await gateway.http.post(CODES, json=wrong, headers=admin)).status_code == 400
    code = (await make_code(gateway))["code"]
    key = (await join(gateway, code)).json()["key"]
    secrets = [code.removeprefix("jc-"), key.partition(".")[2]]
    for name in [name async for name in stores.link.client.scan_iter("*")]:
        kept = name + (await stores.link.client.dump(name) or b"")
        assert not any(secret.encode() in kept for secret in secrets), name
    audit = (await gateway.http.get("/v1/audit", headers=admin)).json()["data"]
    actions = [one["action"] for one in audit]
    assert {"join_code.created", "key.created", "worker.registered"} <= set(actions)
    said = str(audit) + capsys.readouterr().err
    assert not any(secret in said for secret in secrets)


async def test_a_machine_that_does_not_prove_itself_does_not_use_the_code_up(gateway: Gateway) -> None:
    made = await make_code(gateway)
    async with answering(200, b"nonsense") as (url, _):
        assert (await join(gateway, made["code"], url)).status_code == 400
    assert (await join(gateway, made["code"])).status_code == 200


@pytest.mark.parametrize("how", ["evicted", "its key revoked"])
async def test_a_worker_that_joined_by_a_code_ends_with_its_key(gateway: Gateway, how: str) -> None:
    told = (await join(gateway, (await make_code(gateway))["code"])).json()
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    key_id = told["key"].removeprefix("tk-").partition(".")[0]
    path = f"/workers/{told['id']}" if how == "evicted" else f"/v1/keys/{key_id}"
    ended = await gateway.http.delete(path, headers=admin)
    assert ended.status_code == 200, ended.text
    if how == "evicted":
        assert ended.json()["key_revoked"] is True
    beat = await gateway.http.post(
        f"/workers/{told['id']}/heartbeat", json=BEAT, headers=bearer(told["secret"])
    )
    assert beat.status_code == 403
    assert refused(await join(gateway, told["key"]), "invalid_api_key")


async def test_evicting_a_worker_leaves_a_key_that_others_share(gateway: Gateway) -> None:
    shared = await gateway.key(role=Role.WORKER)
    told = (await join(gateway, shared)).json()
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    assert (await gateway.http.delete(f"/workers/{told['id']}", headers=admin)).json()["key_revoked"] is False
    assert (await join(gateway, shared)).status_code == 200


async def test_the_command_has_the_public_url_before_any_other(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, public_url="https://gpu.example") as gateway:
        made = await make_code(gateway, url="http://127.0.0.1:8000")
        assert made["url"] == "https://gpu.example"
        assert (
            made["command"]
            == f"TURNOUT_JOIN_TOKEN={made['code']} turnout worker --join https://gpu.example --tunnel"
        )


async def test_the_command_names_the_gateways_own_machine_only_if_nothing_else_is_known(
    stores: Stores, tmp_path: Path
) -> None:
    """`turnout up` on loopback behind a proxy or a forwarded port: whoever looks at the page came by another address."""
    async with running(stores, tmp_path, public_url="http://127.0.0.1:8000") as gateway:
        assert (await make_code(gateway, url="https://door.example"))["url"] == "https://door.example"
        assert (await make_code(gateway, url="http://localhost:8000"))["url"] == "http://gateway"


async def test_without_one_it_has_the_address_that_the_caller_uses(gateway: Gateway) -> None:
    assert (await make_code(gateway, url="https://door.example/"))["url"] == "https://door.example"
    assert (await make_code(gateway))["url"] == "http://gateway"


@pytest.mark.parametrize(
    ("url", "flags"),
    [
        ("https://gpu.example", " --tunnel"),
        ("https://gpu.example:8443/turnout", " --tunnel"),
        ("http://10.0.0.5:8000", " --tunnel --allow-plaintext"),
        ("http://127.0.0.1:8000", ""),
        ("https://localhost:8443", ""),
        ("http://[::1]:8000", ""),
    ],
)
def test_the_command_works_behind_a_nat_and_on_the_gateways_own_machine(url: str, flags: str) -> None:
    command = join_command(url, "jc-x")
    assert command.replace("'", "") == f"TURNOUT_JOIN_TOKEN=jc-x turnout worker --join {url}{flags}"


def test_a_key_depends_on_the_code_and_on_the_machine() -> None:
    made = [
        key_by_code(code, probe, "box", 7.0) for code in ("jc-a", "jc-b") for probe in ("p" * 32, "q" * 32)
    ]
    assert len({token for _, token in made}) == len({key.id for key, _ in made}) == 4
    key, token = made[0]
    assert (key, token) == key_by_code("jc-a", "p" * 32, "box", 7.0), (
        "a machine that asks again gets the same"
    )
    assert key.role is Role.WORKER and key.for_one_worker and len(token.partition(".")[2]) == 43
    assert (key.tenant, key.name, key.created_at, key.expires_at) == ("default", "box", 7.0, None)
    assert len(key.id) == 16 and matches(key, token.partition(".")[2]), "and that of a key like any other"


def test_a_code_is_known_by_its_beginning() -> None:
    assert is_join_code(new_join_code("secret")) and new_join_code("secret").endswith("secret")
    assert not is_join_code("tk-jc-1.secret") and not is_join_code("secret")


@pytest.mark.parametrize(
    ("known", "url"),
    [
        (("https://gpu.example/", "http://10.0.0.5:8000"), "https://gpu.example"),
        ((None, "", "http://10.0.0.5:8000//"), "http://10.0.0.5:8000"),
        (("http://127.0.0.1:8000/turnout/", "http://10.0.0.5:8000"), "http://10.0.0.5:8000"),
        (("http://localhost:8000/", "http://[::1]:8000"), "http://localhost:8000"),
    ],
)
def test_the_first_address_that_leads_here_from_elsewhere_is_the_one(
    known: tuple[str | None, ...], url: str
) -> None:
    assert reachable_url(*known) == url
