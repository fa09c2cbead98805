"""`/docs`: the API for people, with nothing from elsewhere."""

import re

from tests.gateways import Gateway


async def test_the_api_is_shown_in_a_browser_that_loads_nothing_from_elsewhere(gateway: Gateway) -> None:
    del gateway.http.headers["authorization"]
    page = await gateway.http.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(linked) == 3 and all(link.startswith("/docs/") for link in linked)
    for link in linked:
        file = await gateway.http.get(link)
        assert file.status_code == 200 and len(file.content) > 50, link
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "http" not in policy
    assert (await gateway.http.get("/openapi.json")).json()["paths"]
