"""The page's files: served by name only, compressed where accepted, with a policy that lets nothing else in."""

import gzip
import json
import os
from pathlib import Path

import pytest
from tests.gateways import Gateway

from turnout.gateway.page import page_routes
from turnout.gateway.page.page_bundle import PageBundle


def build(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    about = {
        name: {"type": "text/html; charset=utf-8", "immutable": name.startswith("assets/")} for name in files
    }
    (folder / "manifest.json").write_text(json.dumps({"index": "index.html", "files": about}))


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    monkeypatch.setattr(page_routes, "_bundle", PageBundle(folder))
    return folder


async def test_the_page_and_its_assets(gateway: Gateway, bundle: Path) -> None:
    build(bundle, {"index.html": b"<p>page", "assets/main-1.js": b"run()"})
    del gateway.http.headers["authorization"]
    page = await gateway.http.get("/")
    assert (page.status_code, page.text) == (200, "<p>page")
    assert page.headers["cache-control"] == "no-cache"
    assert page.headers["content-encoding"] == "gzip"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    script = await gateway.http.get("/assets/main-1.js", headers={"accept-encoding": "identity"})
    assert script.content == b"run()" and "content-encoding" not in script.headers
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (await gateway.http.head("/")).status_code == 200


@pytest.mark.parametrize("name", ["secret", "..%2fsecret", "..%2f..%2fpage_routes.py", "main-1.js.gz"])
async def test_only_what_the_manifest_names_is_served(gateway: Gateway, bundle: Path, name: str) -> None:
    build(bundle, {"index.html": b"<p>page", "assets/main-1.js": b"run()"})
    (bundle / "assets" / "secret").write_text("no")
    assert (await gateway.http.get(f"/assets/{name}")).status_code == 404


async def test_a_page_that_was_built_anew_is_served_at_once(gateway: Gateway, bundle: Path) -> None:
    build(bundle, {"index.html": b"old"})
    assert (await gateway.http.get("/")).text == "old"
    build(bundle, {"index.html": b"new"})
    os.utime(bundle / "manifest.json", (1, 1))
    assert (await gateway.http.get("/")).text == "new"


async def test_without_a_bundle_the_root_says_how_to_get_it(gateway: Gateway, bundle: Path) -> None:
    answer = await gateway.http.get("/")
    assert answer.status_code == 200 and "./dev page" in answer.text
    assert (await gateway.http.get("/assets/main-1.js")).status_code == 404
