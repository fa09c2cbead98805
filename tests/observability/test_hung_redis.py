"""A Redis that hangs: a scrape answers in good time, says so, and tells what it knew with its age."""

import re
from pathlib import Path

import httpx
from tests.conftest import wait_until
from tests.service import running_service

SCRAPE_S = 10.0  # as long as Prometheus waits by default
KNOWN = 'turnout_workers{standing="alive"} 1.0'


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is missing"
    return float(found[1])


async def test_a_hung_redis_is_told_within_a_scrape_with_what_was_known_before(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=SCRAPE_S) as http:

            async def known() -> bool:
                text = (await http.get("/metrics")).raise_for_status().text
                return value(text, "turnout_redis_up") == 1 and KNOWN in text

            await wait_until(known, "the worker to be told of", 60)
            (redis,) = service.parts("redis")
            redis.suspend()
            try:
                texts = [(await http.get("/metrics")).raise_for_status().text for _ in range(3)]
            finally:
                redis.resume()
        for text in texts:
            assert value(text, "turnout_redis_up") == 0
            assert KNOWN in text, "what was known is told"
        ages = [value(text, 'turnout_look_age_seconds{of="fleet"}') for text in texts]
        assert 0 < ages[0] < ages[1] < ages[2]
