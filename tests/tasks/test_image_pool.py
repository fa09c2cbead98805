"""Pictures that strangers send are decoded in processes with limits, and tenants take turns."""

import asyncio
import io
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.conftest import wait_until

from turnout.errors import InvalidRequest, Limited
from turnout.tasks import image_pool
from turnout.tasks.image_fitting import FrameSize, fit
from turnout.tasks.image_pool import ImagePool
from turnout.tenants.tenant_turns import TenantTurns
from turnout.tenants.turn_rules import Turn, turn_of_other

SIZE = FrameSize(64, 48, 16_000_000)
ME, OTHER = turn_of_other("me"), turn_of_other("other")


def picture(kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (128, 128), "red").save(out, kind, **options)
    return out.getvalue()


def scans(count: int) -> bytes:
    """A small progressive JPEG that has its last scan many times: each is decoded over all pixels."""
    out = io.BytesIO()
    Image.new("L", (3900, 3900), 90).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    begin, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:begin] + data[begin:end] * count + data[end:]


@pytest.fixture
async def pool() -> AsyncIterator[ImagePool]:
    made = ImagePool(SIZE.max_pixels)
    yield made
    await made.aclose()


async def test_a_picture_is_fitted_by_a_process_that_serves_the_next_one_too(pool: ImagePool) -> None:
    for kind in ("PNG", "JPEG", "WEBP"):
        made = Image.open(io.BytesIO(await pool.fit(picture(kind), SIZE, ME)))
        assert (made.format, made.size) == ("PNG", (64, 48))
    assert len(pool._idle) == 1


async def test_a_refusal_is_told_and_the_process_goes_on(pool: ImagePool) -> None:
    with pytest.raises(InvalidRequest, match="not a readable") as caught:
        await pool.fit(b"no picture", SIZE, ME)
    assert caught.value.code == "invalid_image"
    assert await pool.fit(picture(), SIZE, ME)
    assert len(pool._idle) == 1


async def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded(pool: ImagePool) -> None:
    bomb = scans(400)
    assert len(bomb) < 2**20
    with pytest.raises(InvalidRequest) as caught:
        await pool.fit(bomb, SIZE, ME)
    assert caught.value.code == "image_too_costly"


async def test_what_kills_its_process_is_refused_and_others_are_served(pool: ImagePool) -> None:
    await pool.fit(picture(), SIZE, ME)
    process = pool._idle[0]
    os.kill(process.pid, signal.SIGXCPU)
    await process.wait()
    with pytest.raises(InvalidRequest) as caught:
        await pool.fit(picture(), SIZE, ME)
    assert caught.value.code == "image_too_costly"
    assert await pool.fit(picture(), SIZE, OTHER)


async def test_a_process_has_limits_and_none_of_our_secrets(
    pool: ImagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_REDIS_URL", "redis://:secret@x")
    await pool.fit(picture(), SIZE, ME)
    pid = pool._idle[0].pid
    said = Path(f"/proc/{pid}/limits").read_text()
    limits = {line[:26].strip(): line[26:47].strip() for line in said.splitlines()}
    assert limits["Max address space"] != "unlimited" and int(limits["Max address space"]) < 2**30
    assert limits["Max cpu time"] != "unlimited" and int(limits["Max cpu time"]) < 30
    assert "secret" not in Path(f"/proc/{pid}/environ").read_text()


async def test_tenants_take_turns(pool: ImagePool) -> None:
    ended: list[str] = []

    async def ask(tenant: Turn) -> None:
        await pool.fit(picture(), SIZE, tenant)
        ended.append(tenant)

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(ask(ME))
        await asyncio.sleep(0)
        group.create_task(ask(OTHER))
    assert ended.index("other") <= 4


async def test_the_queue_is_bounded_and_nothing_leaks(
    pool: ImagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_turns", TenantTurns(replace(image_pool._TURNS, waiting=3)))
    asked = [asyncio.create_task(pool.fit(picture(), SIZE, ME)) for _ in range(8)]
    await asyncio.sleep(0)
    asked.append(asyncio.create_task(pool.fit(picture(), SIZE, OTHER)))
    await asyncio.sleep(0)
    asked[3].cancel()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, Limited) for one in results) >= 3
    assert isinstance(results[-1], bytes)  # the tenant with less was let in
    await wait_until(lambda: pool._turns.idle, "all is given back")
    assert await pool.fit(picture(), SIZE, ME)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_no_damage_makes_anything_but_a_refusal(kind: str) -> None:
    chance = random.Random(7)
    whole = picture(kind)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(InvalidRequest):
            fit(bytes(data[: chance.choice((len(data), chance.randrange(len(data))))]), SIZE)
