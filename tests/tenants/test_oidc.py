"""Logins by tokens of a real issuer on loopback: which are taken, as whom, and what becomes of all others."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import websockets
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.chat.test_chat_limits import ASK, PATH, at_once
from tests.conftest import Stores, wait_until
from tests.gateways import bearer, chatting, identified, recalled, running
from tests.pace import patient
from tests.relay.kit import Call

from turnout.errors import Forbidden, Misconfigured, Unauthorized, Unavailable
from turnout.run.config import dump, load
from turnout.store.outbound import WORKERS, Outbound
from turnout.tenants.key_rules import Role
from turnout.tenants.oidc import OidcLogins
from turnout.tenants.tenant_settings import OidcSettings

RSA = rsa.generate_private_key(65537, 2048)


@dataclass
class Issuer:
    """Publishes `keys`; `said` changes its discovery document, `asked` is what it was asked for."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    silent: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(path)
        if not self.silent:
            answer = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.said}
            if path == "/jwks":
                answer = {"keys": [as_jwk(kid, key) for kid, key in self.keys.items()]}
            body = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    @property
    def settings(self) -> OidcSettings:
        return OidcSettings(self.url, "turnout", roles={"ops": Role.ADMIN, "graphs": Role.METRICS})

    def token(self, kid: str = "rsa", alg: str = "RS256", key: Any = None, **changes: Any) -> str:
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": "turnout",
            "sub": "ann",
            "iat": now,
            "exp": now + 300,
            "tenant": "acme",
        }
        claims = {name: value for name, value in (claims | changes).items() if value is not None}
        return jwt.encode(claims, key or self.keys[kid], alg, headers={"kid": kid})


def as_jwk(kid: str, key: Any) -> dict[str, Any]:
    kinds = {
        rsa.RSAPrivateKey: ("RS256", RSAAlgorithm),
        ec.EllipticCurvePrivateKey: ("ES256", ECAlgorithm),
    }
    for kind, (alg, how) in kinds.items():
        if isinstance(key, kind):
            return {**how.to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": alg, "use": "sig"}
    return {**OKPAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer(keys={"rsa": RSA})
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def logging_in(settings: OidcSettings, clock: Clock | None = None) -> AsyncIterator[OidcLogins]:
    outbound = Outbound(True, reach=WORKERS)
    try:
        yield OidcLogins(settings, outbound, clock or Clock())
    finally:
        await outbound.aclose()


async def refusal(logins: OidcLogins, token: str) -> str | None:
    with pytest.raises(Unauthorized) as refused:
        await logins.verify(token)
    assert not any(len(part) > 8 and part in str(refused.value) for part in token.split("."))
    return refused.value.code


async def test_a_good_token_is_a_key_until_it_ends(issuer: Issuer) -> None:
    issuer.keys |= {"ec": ec.generate_private_key(ec.SECP256R1()), "ed": ed25519.Ed25519PrivateKey.generate()}
    async with logging_in(issuer.settings) as logins:
        for kid, alg in (("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")):
            key = await logins.verify(issuer.token(kid, alg, exp=2_000_000_000))
            assert (key.tenant, key.role, key.name) == ("acme", Role.USER, "ann")
            assert key.id.startswith("oidc-")
            assert key.expires_at == pytest.approx(2_000_000_000, abs=30)
        assert issuer.asked == ["/.well-known/openid-configuration", "/jwks"]


async def test_every_other_token_is_refused(issuer: Issuer) -> None:
    public = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    now = time.time()

    def forged(head: Mapping[str, Any]) -> str:
        _, payload, signature = issuer.token().split(".")
        return f"{_encoded(head)}.{payload}.{signature}"

    bad = {
        "another audience": issuer.token(aud="others"),
        "a longer audience": issuer.token(aud="turnout2"),
        "another issuer": issuer.token(iss=issuer.url + "/"),
        "not yet": issuer.token(nbf=now + 60),
        "from the future": issuer.token(iat=now + 60),
        "no end": issuer.token(exp=None),
        "no audience": issuer.token(aud=None),
        "no subject": issuer.token(sub=None),
        "an end that is no number": issuer.token(exp="soon"),
        "an endless end": issuer.token(exp=1e400),
        "another's key": issuer.token(key=rsa.generate_private_key(65537, 2048)),
        "none": forged({"alg": "none", "kid": "rsa"}).rpartition(".")[0] + ".",
        "none, signed": forged({"alg": "none", "kid": "rsa"}),
        "HS256 by the public key": _hs256(issuer.token(), public),
        "RS512": issuer.token(alg="RS512"),
        "ES256 by an RSA key": forged({"alg": "ES256", "kid": "rsa"}),
        "no kid": forged({"alg": "RS256"}),
        "a kid that is no name": forged({"alg": "RS256", "kid": ["rsa"]}),
        "a critical extension": forged({"alg": "RS256", "kid": "rsa", "crit": ["x"]}),
        "a changed claim": issuer.token().replace(".", ".e30", 1),
        "no base64": "a.b.c",
        "empty": "..",
        "long": f"a.{'b' * 2**20}.c",
        "deep": f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.b.c",
    }
    async with logging_in(issuer.settings) as logins:
        await logins.verify(issuer.token(aud=["others", "turnout"]))
        for what, token in bad.items():
            assert await refusal(logins, token) == "invalid_token", what
        assert await refusal(logins, issuer.token(exp=now - 60)) == "expired_token"
        assert len(issuer.asked) == 2, "no bad token made it fetch keys again"


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _hs256(token: str, secret: bytes) -> str:
    """By hand: the library refuses to sign with a public key."""
    import hashlib
    import hmac

    signed = f"{_encoded({'alg': 'HS256', 'kid': 'rsa'})}.{token.split('.')[1]}"
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


async def test_a_new_key_of_the_issuer_is_found_and_a_flood_of_unknown_ones_asks_once(issuer: Issuer) -> None:
    clock = Clock()
    async with logging_in(issuer.settings, clock) as logins:
        await logins.verify(issuer.token())
        old = issuer.token()
        issuer.keys = {"new": rsa.generate_private_key(65537, 2048)}
        assert await refusal(logins, issuer.token("new")) == "invalid_token", "the keys were fetched just now"
        clock.now += 11
        for _ in range(3):
            assert await refusal(logins, issuer.token("unknown", key=RSA)) == "invalid_token"
        assert len(issuer.asked) == 4
        assert (await logins.verify(issuer.token("new"))).tenant == "acme"
        assert await refusal(logins, old) == "invalid_token", "the issuer has withdrawn its key"


async def test_keys_that_are_old_are_fetched_again_and_kept_while_the_issuer_is_away(issuer: Issuer) -> None:
    clock = Clock()
    async with logging_in(issuer.settings, clock) as logins:
        await logins.verify(issuer.token())
        issuer.silent = True
        clock.now += 700
        await logins.verify(issuer.token())
        await wait_until(lambda: len(issuer.asked) == 3, "the keys to be asked for")
        await wait_until(lambda: logins._fetching is not None and logins._fetching.done(), "the end of it")
        await logins.verify(issuer.token())
        clock.now += 90_000
        await logins.verify(issuer.token())
        await wait_until(lambda: logins._keys == {}, "keys that are too old to be dropped")
        with pytest.raises(Unavailable):
            await logins.verify(issuer.token())


async def test_a_caller_that_gives_up_does_not_keep_others_from_the_issuers_keys(issuer: Issuer) -> None:
    async with logging_in(issuer.settings) as logins:
        first = asyncio.create_task(logins.verify(issuer.token()))
        await asyncio.sleep(0)
        first.cancel()
        assert (await logins.verify(issuer.token())).tenant == "acme"


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "http://127.0.0.1:1"},
        {"jwks_uri": "http://example.com/jwks"},
        {"jwks_uri": 7},
        {"x": "y" * 300_000},
    ],
)
async def test_an_answer_that_is_not_the_issuers_is_not_believed(
    issuer: Issuer, said: dict[str, Any]
) -> None:
    issuer.said = said
    async with logging_in(issuer.settings) as logins:
        with pytest.raises(Unavailable):
            await logins.verify(issuer.token())
        assert "/jwks" not in issuer.asked


async def test_roles_and_tenants_are_those_that_the_claims_name(issuer: Issuer) -> None:
    settings = replace(issuer.settings, role_claim="realm.roles", tenant_claim="https://x.example/org")

    def token(roles: Any, tenant: Any = "acme") -> str:
        return issuer.token(tenant=None, **{"https://x.example/org": tenant, "realm": {"roles": roles}})

    async with logging_in(settings) as logins:
        for roles, expected in (
            (["graphs", "ops"], Role.ADMIN),
            ("graphs", Role.METRICS),
            ("not ops", Role.USER),
            (None, Role.USER),
            ([7, {"ops": 1}], Role.USER),
        ):
            assert (await logins.verify(token(roles))).role is expected
        for tenant in (None, "", "a b", "acme\n", "a:b", ["acme"], "x" * 65):
            with pytest.raises(Forbidden):
                await logins.verify(token("ops", tenant))
    async with logging_in(replace(settings, default_role=None)) as logins:
        assert (await logins.verify(token("ops"))).role is Role.ADMIN
        with pytest.raises(Forbidden):
            await logins.verify(token("others"))


def test_settings_survive_the_file_that_other_processes_read(tmp_path: Path) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text(
        "oidc: {issuer: 'https://x.example', audience: a, roles: {ops: admin}, default_role: null}\n"
    )
    config = load({}, {}, file).config
    assert config.access.oidc == OidcSettings(
        "https://x.example", "a", roles={"ops": Role.ADMIN}, default_role=None
    )
    file.write_text(json.dumps(dump(config)))
    assert load({}, {}, file).config == config


@pytest.mark.parametrize(
    ("oidc", "problem"),
    [
        ("{audience: a}", "issuer"),
        ("{issuer: 'http://example.com', audience: a}", "https"),
        ("{issuer: 'https://me:pw@example.com', audience: a}", "https"),
        ("{issuer: 'https://x.example', audience: a, default_role: worker}", "worker"),
        ("{issuer: 'https://x.example', audience: a, rolls: {}}", "rolls"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_one_line(
    tmp_path: Path, oidc: str, problem: str
) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text(f"oidc: {oidc}\n")
    with pytest.raises(Misconfigured) as refused:
        load({}, {}, file)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_missing_library_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jwt", None)
    with pytest.raises(Misconfigured, match=r"turnout\[oidc\]"):
        async with logging_in(OidcSettings("https://x.example", "a")):
            pass


async def test_a_token_is_taken_wherever_a_key_is(issuer: Issuer, stores: Stores, tmp_path: Path) -> None:
    good, bad = issuer.token(), issuer.token(aud="others")
    admin = issuer.token(sub="bob", roles=["ops"])
    async with chatting(stores, tmp_path, oidc=issuer.settings) as chat, chat.client() as http:
        await chat.replica(at_once)
        for _ in range(2):
            assert (await http.post(PATH, json=ASK, headers=bearer(good))).status_code == 200
        await refused(await http.post(PATH, json=ASK, headers=bearer(bad)), "invalid_token")
        ended = issuer.token(exp=time.time() - 60)
        await refused(await http.post(PATH, json=ASK, headers=bearer(ended)), "expired_token")

        assert (await http.get("/v1/videos", headers=bearer(good))).status_code == 200
        await refused(await http.get("/v1/videos", headers=bearer(bad)), "invalid_token")
        assert (await http.get("/v1/keys", headers=bearer(good))).status_code == 403
        made = await http.post("/v1/keys", json={}, headers=bearer(admin))
        assert made.status_code == 200
        entry, *_ = (await http.get("/v1/audit", headers=bearer(admin))).json()["data"]
        assert entry["actor"].startswith("oidc-")
        assert entry["detail"]["login"] == "bob"
        assert (await http.post("/v1/session/codes", headers=bearer(admin))).status_code == 403

        url = f"{chat.base.replace('http', 'ws')}/v1/videos/ws"
        async with websockets.connect(url) as socket:
            await socket.send(json.dumps({"key": good}))
            assert json.loads(await socket.recv())["object"] == "video.watching"
            video = await chat.gateway.submit()
            assert json.loads(await socket.recv())["video"] == video


async def refused(answer: httpx.Response, code: str) -> None:
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == code


async def test_a_login_is_recalled_until_its_token_ends(
    issuer: Issuer, stores: Stores, tmp_path: Path
) -> None:
    ring_time = Clock()
    async with running(stores, tmp_path, oidc=issuer.settings) as gateway:
        ring = gateway.inside.keys
        ring._now = lambda: time.time() + ring_time.now
        token = issuer.token()
        caller = await identified(ring, token)
        assert recalled(ring, token) == caller, "chat does not wait for the next look at it"
        assert recalled(ring, f"{token}x") is None
        assert await ring.as_they_are({caller.id if caller else "", "nobody"}) == {"nobody": None}
        ring_time.now = 400
        assert recalled(ring, token) is None


async def test_without_an_issuer_a_token_is_no_key(issuer: Issuer, stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path) as gateway:
        await refused(await gateway.http.get("/v1/videos", headers=bearer(issuer.token())), "invalid_api_key")
        assert issuer.asked == []


async def test_a_stream_goes_on_while_its_token_is_good(
    issuer: Issuer, stores: Stores, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def slow(call: Call) -> None:
        await go_on.wait()
        await at_once(call)

    async with (
        chatting(stores, tmp_path, oidc=issuer.settings) as chat,
        chat.client() as http,
        asyncio.TaskGroup() as group,
    ):
        replica = await chat.replica(slow)
        answer = group.create_task(http.post(PATH, json=ASK, headers=bearer(issuer.token())))
        await wait_until(lambda: len(replica.requests) == 1, "the request to arrive")
        await chat.gateway.inside.revocations.check()
        go_on.set()
        assert (await answer).status_code == 200


async def test_a_stream_ends_with_its_token(issuer: Issuer, stores: Stores, tmp_path: Path) -> None:
    async def streams(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b'data: {"choices": []}\n\n')
        await call.wait_hung_up()

    async with chatting(stores, tmp_path, oidc=issuer.settings) as chat, chat.client() as http:
        await chat.replica(streams)
        shown = bearer(issuer.token(exp=time.time() - 5))  # within the 10 s by which clocks may differ
        async with (
            asyncio.timeout(patient(30)),
            http.stream("POST", PATH, json={**ASK, "stream": True}, headers=shown) as answer,
        ):
            told = (await answer.aread()).decode()
        assert told.count("data: ") == 2 and "invalid_api_key" in told
