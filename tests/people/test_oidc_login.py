"""Logging in by an issuer on the page: a real one on loopback, and everything that others may try on the way."""

import io
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from joserfc.jwk import RSAKey
from tests.conftest import Stores
from tests.fleet.test_join_codes import join
from tests.gateways import Gateway, bearer, running
from tests.issuer import CLIENT, SECRET, Issuer, consent, running_issuer
from tests.people.test_people import Visit, admin_of, refused

from turnout.errors import Misconfigured, NotFound
from turnout.people import oidc_flow
from turnout.run.config import load

PUBLIC = "http://127.0.0.1:8123"
CALLBACK = "/v1/login/oidc/callback"


@pytest.fixture(scope="module")
def shared_issuer() -> Iterator[Issuer]:
    with running_issuer() as made:
        yield made


@pytest.fixture
def issuer(shared_issuer: Issuer) -> Issuer:
    """As it was made: each test bends it its own way."""
    shared_issuer.people = {
        "ann": {"name": "Ann", "email": "ann@example.com", "groups": ["ops"], "tenant": "acme"},
        "bob": {"preferred_username": "bob"},
    }
    shared_issuer.said, shared_issuer.claims = {}, {}
    shared_issuer.names_itself, shared_issuer.exchanges = True, 0
    shared_issuer.codes.clear()
    return shared_issuer


@pytest.fixture
async def site(issuer: Issuer, stores: Stores, tmp_path: Path) -> AsyncIterator[Gateway]:
    settings = issuer.settings(audience="api")
    async with running(
        stores, tmp_path, oidc=settings, oidc_client_secret=SECRET, public_url=PUBLIC
    ) as gateway:
        yield gateway


async def depart(visit: Visit) -> str:
    """To the issuer; the URL of its page."""
    sent = await visit.http.get("/v1/login/oidc")
    assert sent.status_code == 303, sent.text
    return sent.headers["location"]


async def agree(page: str, subject: str | None = "ann") -> str:
    """The person's answer there; where the issuer sends the browser back to."""
    url, form = consent(page, subject)
    async with httpx.AsyncClient(timeout=30) as browser:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await browser.post(url, content=form, headers=headers)
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


async def arrive(visit: Visit, back: str) -> str:
    """Back at the gateway; the fragment of the page that the browser ends up at."""
    assert back.startswith(PUBLIC + CALLBACK)
    answer = await visit.http.get(back.removeprefix(PUBLIC))
    assert answer.status_code == 303, answer.text
    where = answer.headers["location"]
    assert where.startswith(f"{PUBLIC}/#"), "our own page, and nowhere else"
    return where.partition("#")[2]


async def log_in(gateway: Gateway, subject: str | None = "ann") -> tuple[Visit, str]:
    visit = Visit(gateway)
    return visit, await arrive(visit, await agree(await depart(visit), subject))


def changed(back: str, **params: str | None) -> str:
    """The URL with some parameters changed, or left out."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()} | params
    kept = {name: value for name, value in query.items() if value is not None}
    return str(httpx.URL(back.partition("?")[0], params=kept))


async def test_whoever_logs_in_is_a_person_by_the_issuers_name_for_her(site: Gateway, issuer: Issuer) -> None:
    ways = (await site.http.get("/v1/login")).json()
    assert ways["oidc"] == {"name": "Test issuer"}
    visit = Visit(site)
    page = await depart(visit)
    asked = parse_qs(urlsplit(page).query)
    assert page.startswith(f"{issuer.url}/authorize?") and asked["code_challenge_method"] == ["S256"]
    assert (
        asked["redirect_uri"] == [PUBLIC + CALLBACK] and {"state", "nonce", "code_challenge"} <= asked.keys()
    )
    assert await arrive(visit, await agree(page)) == "/create"
    shown = (await visit.http.get("/v1/session")).json()
    assert (shown["name"], shown["tenant"], shown["role"]) == ("Ann", "acme", "admin")
    account = (await visit.http.get("/v1/account")).json()["person"]
    assert (account["email"], account["way"], account["issuer"]) == ("ann@example.com", "oidc", issuer.url)
    issuer.people["ann"] |= {"name": "Ann B.", "groups": []}
    again, _ = await log_in(site)
    back = (await again.http.get("/v1/session")).json()
    assert (back["person"], back["name"]) == (shown["person"], "Ann B.")
    assert back["role"] == "admin", "no role is named: what she was counts"
    bob, _ = await log_in(site, "bob")
    his = (await bob.http.get("/v1/session")).json()
    assert (his["name"], his["role"], his["tenant"]) == ("bob", "user", f"t-{his['person']}")
    actions = [e["action"] for e in (await visit.http.get("/v1/audit")).json()["data"]][::-1]
    assert actions[:2] == ["person.joined", "session.opened"] and actions.count("person.joined") == 2
    assert "Ann" not in (await visit.http.get("/v1/audit")).text


async def test_what_a_person_asked_for_is_hers_in_every_tenant_that_she_had(
    site: Gateway, issuer: Issuer
) -> None:
    """The issuer moved her to another tenant: her videos in the one before were not deleted with her."""
    del issuer.people["ann"]["tenant"]
    videos = list[str]()
    for tenant in (None, "acme", "design"):
        if tenant is not None:
            issuer.people["ann"]["tenant"] = tenant
        ann, _ = await log_in(site)
        videos.append((await ann.http.post("/v1/videos", json={"prompt": "a ball"})).json()["id"])
    others = await site.submit()
    with zipfile.ZipFile(io.BytesIO((await ann.http.get("/v1/account/export")).content)) as saved:
        assert {name.split("/")[1] for name in saved.namelist() if name.startswith("videos/")} == set(videos)
    gone = await ann.http.delete("/v1/account", params={"everything": True})
    assert gone.status_code == 200
    for video in videos:
        with pytest.raises(NotFound):
            await site.task(video)
    assert (await site.task(others)).tenant == "acme"


async def test_the_cookies_of_a_login_are_kept_from_scripts_and_other_sites(
    issuer: Issuer, stores: Stores, tmp_path: Path
) -> None:
    issuer.redirect_uri = f"https://videos.example{CALLBACK}"
    try:
        async with running(
            stores,
            tmp_path,
            oidc=issuer.settings(),
            oidc_client_secret=SECRET,
            public_url="https://videos.example/",
        ) as site:
            visit = Visit(site)
            sent = await visit.http.get("/v1/login/oidc")
            cookie = sent.headers["set-cookie"]
            assert cookie.startswith("__Host-turnout_login=") and cookie.endswith("; Secure")
            assert "; HttpOnly; SameSite=Lax; Path=/; Max-Age=600" in cookie
            back = await agree(sent.headers["location"])
            secret = cookie.partition(";")[0].partition("=")[2]
            landed = await visit.http.get(
                back.removeprefix("https://videos.example"),
                headers={"cookie": f"__Host-turnout_login={secret}"},
            )
            session, spent = landed.headers.get_list("set-cookie")
            assert landed.headers["location"] == "https://videos.example/#/create"
            assert session.startswith("__Host-turnout_session=") and "; HttpOnly; SameSite=Strict" in session
            assert "Max-Age=0" in spent
    finally:
        issuer.redirect_uri = None


async def test_what_this_browser_did_not_begin_logs_nobody_in(site: Gateway, issuer: Issuer) -> None:
    """State, replay, another browser's login (login CSRF), and a session that was there before (fixation)."""
    visit, thief = Visit(site), Visit(site)
    back = await agree(await depart(visit))
    for other in (thief, Visit(site)):
        await depart(thief)  # it has a login of its own under way
        assert await arrive(other, back) == "login=stale"
    assert await arrive(visit, back) == "login=stale", "who tried it has used it up"
    assert issuer.exchanges == 0, "no code was shown to the issuer for that"
    fixed = {"turnout_session": "tk-s-0000000000000000.fixed", "turnout_login": "fixed"}
    visit.http.cookies.update(fixed)
    assert (await visit.http.get("/v1/session")).status_code == 204
    visit = Visit(site)
    visit.http.cookies.set("turnout_session", fixed["turnout_session"], domain="gateway.local")
    good = await agree(await depart(visit))
    assert await arrive(visit, good) == "/create"
    tokens = [c.value for c in visit.http.cookies.jar if c.name == "turnout_session"]
    assert any(token != fixed["turnout_session"] for token in tokens), "a new one each time"
    exchanges = issuer.exchanges
    assert await arrive(visit, good) == "login=stale", "a code is used once"
    for state in ("", "guessed", "x" * 256):
        assert await arrive(visit, changed(good, state=state)) == "login=stale"
    assert issuer.exchanges == exchanges
    long = await visit.http.get(CALLBACK, params={"state": "x" * 257})
    assert long.status_code == 400


async def test_an_answer_of_another_issuer_is_not_believed(site: Gateway, issuer: Issuer) -> None:
    """Mix-up, by the parameter of RFC 9207."""
    for said in ("https://evil.example", issuer.url + "/", None):
        visit = Visit(site)
        assert await arrive(visit, changed(await agree(await depart(visit)), iss=said)) == "login=failed"
    assert issuer.exchanges == 0


async def test_an_issuer_that_does_not_name_itself_is_fine_unless_it_names_another(
    issuer: Issuer, stores: Stores, tmp_path: Path
) -> None:
    issuer.names_itself = False
    async with running(
        stores, tmp_path, oidc=issuer.settings(), oidc_client_secret=SECRET, public_url=PUBLIC
    ) as site:
        assert (await log_in(site))[1] == "/create"
        visit = Visit(site)
        mixed = changed(await agree(await depart(visit)), iss="https://evil.example")
        assert await arrive(visit, mixed) == "login=failed"


@pytest.mark.parametrize(
    "lie",
    [
        {"nonce": "another"},
        {"nonce": ["a", "list"]},
        {"aud": "another"},
        {"azp": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"sub": "x" * 256},
    ],
    ids=str,
)
async def test_a_token_that_is_not_for_this_login_is_refused(
    site: Gateway, issuer: Issuer, lie: dict[str, Any]
) -> None:
    issuer.claims = lie
    visit, where = await log_in(site)
    assert where == "login=failed" and (await visit.http.get("/v1/session")).status_code == 204
    assert await site.stores.tenants.people.page(None, 10) == []


async def test_a_token_that_somebody_else_signed_is_refused(site: Gateway, issuer: Issuer) -> None:
    assert (await log_in(site))[1] == "/create"
    issuer.key, real = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"}), issuer.key
    try:
        assert (await log_in(site))[1] == "login=failed"
    finally:
        issuer.key = real


async def test_a_stolen_code_is_worth_nothing_without_what_began_the_login(
    site: Gateway, issuer: Issuer
) -> None:
    back = await agree(await depart(Visit(site)))
    code = parse_qs(urlsplit(back).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": PUBLIC + CALLBACK}
    async with httpx.AsyncClient(timeout=30) as thief:
        for verifier in ({}, {"code_verifier": "v" * 64}):
            answer = await thief.post(f"{issuer.url}/token", data=form | verifier, auth=(CLIENT, SECRET))
            assert answer.status_code == 400, "PKCE"


async def test_nothing_that_is_asked_for_leads_elsewhere(site: Gateway, issuer: Issuer) -> None:
    """Open redirects: parameters and headers decide nothing."""
    evil = {"next": "https://evil.example", "redirect_uri": "https://evil.example", "url": "//evil.example"}
    headers = {"host": "evil.example", "x-forwarded-host": "evil.example", "referer": "https://evil.example/"}
    visit = Visit(site)
    sent = await visit.http.get("/v1/login/oidc", params=evil, headers=headers)
    where = sent.headers["location"]
    assert where.startswith(issuer.url) and parse_qs(urlsplit(where).query)["redirect_uri"] == [
        PUBLIC + CALLBACK
    ]
    visit = Visit(site)
    back = changed(await agree(await depart(visit)), **evil)
    answer = await visit.http.get(back.removeprefix(PUBLIC), headers={"x-forwarded-host": "evil.example"})
    assert answer.headers["location"] == f"{PUBLIC}/#/create"
    async with httpx.AsyncClient(timeout=30) as browser:
        bent = str(httpx.URL(where).copy_set_param("redirect_uri", "https://evil.example/cb"))
        assert (await browser.get(bent)).status_code == 400, "the issuer knows one place alone"


def token_of_ann(issuer: Issuer) -> str:
    """As a program of hers has it."""
    now = time.time()
    said = {"iss": issuer.url, "aud": "api", "sub": "ann", "tenant": "acme", "groups": ["ops"]}
    key = issuer.key.as_pem(private=True)
    return jwt.encode({**said, "iat": now, "exp": now + 300}, key, "RS256", headers={"kid": "k1"})


async def test_nobody_fills_redis_with_logins_that_are_only_begun(
    site: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may begin one, and each is kept for minutes."""
    monkeypatch.setattr(oidc_flow, "_MOST_DEPARTURES", 3)
    visit = Visit(site)
    sent = [await visit.http.get("/v1/login/oidc") for _ in range(5)]
    assert "/authorize?" in sent[2].headers["location"]
    assert [one.headers["location"] for one in sent[3:]] == [f"{PUBLIC}/#login=away"] * 2
    link = site.stores.link
    assert len([one async for one in link.client.scan_iter(f"{link.keys.prefix}:oidc:*")]) == 3


async def test_who_says_no_or_may_not_come_in_is_told_so(site: Gateway, issuer: Issuer) -> None:
    assert (await log_in(site, None))[1] == "login=denied"
    issuer.people["bob"] |= {"tenant": "no tenant's name!"}
    assert (await log_in(site, "bob"))[1] == "login=refused"
    visit, _ = await log_in(site)
    ann = (await visit.http.get("/v1/session")).json()["person"]
    admin = await admin_of(site)
    token = token_of_ann(issuer)
    assert (await visit.http.get("/v1/session", headers=bearer(token))).json()["person"] == ann
    code = (await visit.http.post("/workers/join-codes", json={}, headers=bearer(token))).json()["code"]
    assert refused(await visit.http.post("/v1/session", json={"key": token})) == (403, "key_needed")
    await site.http.patch(f"/v1/people/{ann}", json={"disabled": True}, headers=admin)
    assert (await log_in(site))[1] == "login=refused"
    assert (await visit.http.get("/v1/videos")).status_code == 401
    told = await visit.http.get("/v1/videos", headers=bearer(token))
    assert refused(told) == (401, "invalid_token"), "her tokens are worth what she is, too"
    assert refused(await join(site, code)) == (401, "invalid_code"), "nor does what she made with one let in"


async def test_an_issuer_that_cannot_be_asked_is_told_on_the_page(
    issuer: Issuer, stores: Stores, tmp_path: Path
) -> None:
    for said, why in (
        ({"issuer": "https://other.example"}, "away"),
        ({"token_endpoint": "http://plain.example/token"}, "away"),
        ({"authorization_endpoint": None}, "away"),
    ):
        issuer.said = said
        async with running(
            stores, tmp_path, oidc=issuer.settings(), oidc_client_secret=SECRET, public_url=PUBLIC
        ) as site:
            answer = await Visit(site).http.get("/v1/login/oidc")
            assert answer.headers["location"] == f"{PUBLIC}/#login={why}"
    issuer.said = {}
    async with running(
        stores, tmp_path, oidc=issuer.settings(), oidc_client_secret="wrong", public_url=PUBLIC
    ) as site:
        assert (await log_in(site))[1] == "login=failed"
        assert refused(await site.http.get("/v1/videos", headers=bearer("a.b.c"))) == (401, "invalid_api_key")


async def test_without_a_client_there_is_no_button_and_a_client_needs_an_address(
    gateway: Gateway, issuer: Issuer, stores: Stores, tmp_path: Path
) -> None:
    assert (await gateway.http.get("/v1/login")).json()["oidc"] is None
    for path in ("/v1/login/oidc", CALLBACK):
        assert refused(await gateway.http.get(path)) == (404, "no_oidc")
    with pytest.raises(Misconfigured, match="public_url"):
        async with running(stores, tmp_path, oidc=issuer.settings()):
            pass
    for oidc in ({"issuer": issuer.url}, {"issuer": issuer.url, "client_id": "c", "scopes": "profile"}):
        with pytest.raises(Misconfigured):
            load({"oidc": oidc}, {})
    loaded = load({}, {"TURNOUT_OIDC_CLIENT_SECRET": "s"}).config
    assert loaded.access.oidc_client_secret == "s"
