"""What the page says of whoever runs it, and the terms that whoever comes in accepts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, picture, running
from tests.issuer import SECRET, running_issuer
from tests.people.test_oidc_login import PUBLIC, agree, arrive
from tests.people.test_people import Visit, admin_of, refused

from turnout.errors import Misconfigured
from turnout.people.site_settings import FooterLine, SiteSettings
from turnout.run.config import load
from turnout.tenants.tenant_settings import GuestSettings

TERMS = "Be kind.\n\n<script>alert(1)</script>\n请勿生成违法内容。"
ICP = FooterLine("京ICP备00000000号-1", "https://beian.miit.gov.cn/")


def site_in(folder: Path) -> SiteSettings:
    (folder / "logo.png").write_bytes(picture())
    (folder / "terms.txt").write_text(TERMS)
    return SiteSettings(
        "视频体验中心", folder / "logo.png", (ICP, FooterLine("© Example")), folder / "terms.txt"
    )


@pytest.fixture
async def gateway_with_terms(stores: Stores, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running(stores, tmp_path, site=site_in(tmp_path), guests=GuestSettings()) as made:
        yield made


async def test_everybody_reads_who_runs_the_service(gateway_with_terms: Gateway, gateway: Gateway) -> None:
    http = Visit(gateway_with_terms).http
    shown = (await http.get("/v1/site")).json()
    assert (shown["name"], shown["footer"][0]) == ("视频体验中心", {"text": ICP.text, "url": ICP.url})
    assert shown["footer"][1] == {"text": "© Example", "url": None}
    logo = await http.get(shown["logo"])
    assert logo.content == picture() and logo.headers["content-type"] == "image/png"
    assert "sandbox" in logo.headers["content-security-policy"]
    assert logo.headers["x-content-type-options"] == "nosniff"
    terms = (await http.get("/v1/site/terms")).json()
    assert (terms["id"], terms["text"]) == (shown["terms"], TERMS)
    plain = (await Visit(gateway).http.get("/v1/site")).json()
    assert plain == {"object": "site", "name": "Turnout", "logo": None, "footer": [], "terms": None}
    assert refused(await gateway.http.get("/v1/site/logo")) == (404, "no_logo")
    assert refused(await gateway.http.get("/v1/site/terms")) == (404, "no_terms")


async def test_nobody_new_comes_in_without_accepting_the_terms(gateway_with_terms: Gateway) -> None:
    gateway = gateway_with_terms
    admin = await admin_of(gateway)
    terms = (await gateway.http.get("/v1/site")).json()["terms"]
    made = await gateway.http.post("/v1/invites", json={"uses": 1}, headers=admin)
    ways = {"/v1/login/invite": {"invite": made.json()["token"], "name": "Ada"}, "/v1/login/guest": {}}
    for path, body in ways.items():
        visit = Visit(gateway)
        for said in ({}, {"terms": "others"}):
            answer = await visit.http.post(path, json=body | said)
            assert refused(answer) == (400, "terms_needed") and "set-cookie" not in answer.headers
        assert (await visit.http.post(path, json=body | {"terms": terms})).status_code == 200
        kept = (await visit.http.get("/v1/account")).json()["person"]
        assert kept["terms"] == terms, "what she accepted is known of her, and goes with her"
    entries = (await gateway.http.get("/v1/audit", headers=admin)).json()["data"]
    [joined] = [one for one in entries if one["action"] == "person.joined"]
    assert joined["detail"]["terms"] == terms
    back = await gateway.http.post(
        "/v1/invites", json={"person": joined["target"]}, headers=await admin_of(gateway)
    )
    again = {"invite": back.json()["token"]}
    assert refused(await Visit(gateway).http.post("/v1/login/invite", json=again))[1] == "terms_needed"
    key = {"key": gateway.token}
    assert (await Visit(gateway).http.post("/v1/session", json=key)).status_code == 200, "programs' keys"


async def test_a_login_by_the_issuer_needs_the_terms_before_it_departs(
    stores: Stores, tmp_path: Path
) -> None:
    with running_issuer(ann={"name": "Ann"}) as issuer:
        async with running(
            stores,
            tmp_path,
            site=site_in(tmp_path),
            oidc=issuer.settings(),
            oidc_client_secret=SECRET,
            public_url=PUBLIC,
        ) as gateway:
            visit = Visit(gateway)
            for query in ({}, {"terms": "others"}):
                sent = await visit.http.get("/v1/login/oidc", params=query)
                assert sent.headers["location"] == f"{PUBLIC}/#login=terms"
            terms = (await visit.http.get("/v1/site")).json()["terms"]
            sent = await visit.http.get("/v1/login/oidc", params={"terms": terms})
            assert await arrive(visit, await agree(sent.headers["location"])) == "/create"
            assert (await visit.http.get("/v1/account")).json()["person"]["terms"] == terms


@pytest.mark.parametrize(
    "said",
    [
        {"name": ""},
        {"name": "x" * 41},
        {"name": "two\nlines"},
        {"name": "a\u202etac"},
        {"footer": [{"text": "x", "url": "javascript:alert(1)"}]},
        {"footer": [{"text": "x", "url": "http://example.com"}]},
        {"footer": [{"text": "x", "url": "https://user:word@example.com"}]},
        {"footer": [{"text": "x", "url": "https://example.com/\nx"}]},
        {"footer": [{"text": "x"}] * 7},
        {"footer": [{"text": "x", "html": "<b>"}]},
        {"script": "x"},
    ],
    ids=str,
)
def test_what_would_harm_the_page_is_no_setting(said: dict[str, object]) -> None:
    with pytest.raises(Misconfigured, match="site"):
        load({"site": said}, {})


async def test_files_are_looked_at_before_a_gateway_starts(stores: Stores, tmp_path: Path) -> None:
    svg, huge, odd, empty = (tmp_path / name for name in ("a.png", "b.png", "c.txt", "d.txt"))
    svg.write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    huge.write_bytes(picture() + b"\0" * 256 * 1024)
    odd.write_bytes(b"\xff\xfe\xfa")
    empty.write_text("\n")
    for settings, why in (
        (SiteSettings(logo=svg), "no PNG, JPEG or WebP"),
        (SiteSettings(logo=huge), "more than 256 KiB"),
        (SiteSettings(logo=tmp_path / "nothing"), "cannot be read"),
        (SiteSettings(logo=tmp_path), "cannot be read"),
        (SiteSettings(terms=odd), "UTF-8"),
        (SiteSettings(terms=empty), "is empty"),
    ):
        with pytest.raises(Misconfigured, match=why):
            async with running(stores, tmp_path, site=settings):
                pass
