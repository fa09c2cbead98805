"""What every object store must do, on a directory and on a real S3 server that checks signatures."""

import time
from pathlib import Path

import httpx
import pytest

from turnout.errors import NotFound
from turnout.store.object_store import Blobs, open_blobs


@pytest.fixture(params=["directory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "directory":
        return open_blobs(str(tmp_path / "objects"))
    return open_blobs(f"s3://vid/{tmp_path.name}", request.getfixturevalue("s3"))


async def test_what_is_put_is_got(blobs: Blobs) -> None:
    data = bytes(range(256)) * 3000
    await blobs.put("tasks/a/1/video.mp4", data, "video/mp4")
    assert await blobs.get("tasks/a/1/video.mp4") == data
    info = await blobs.head("tasks/a/1/video.mp4")
    assert (info.key, info.size) == ("tasks/a/1/video.mp4", len(data))
    assert info.etag
    assert abs(info.modified_at - time.time()) < 120
    assert b"".join([piece async for piece in blobs.stream(info.key, 1000, 700_000)]) == data[1000:700_000]


async def test_the_etag_changes_with_the_content(blobs: Blobs) -> None:
    await blobs.put("tasks/a/x", b"one", "text/plain")
    before = (await blobs.head("tasks/a/x")).etag
    await blobs.put("tasks/a/x", b"two!", "text/plain")
    assert (await blobs.head("tasks/a/x")).etag != before


async def test_a_missing_key_is_not_found_and_deleting_it_is_fine(blobs: Blobs) -> None:
    with pytest.raises(NotFound):
        await blobs.get("tasks/none")
    with pytest.raises(NotFound):
        await blobs.head("tasks/none")
    await blobs.delete(["tasks/none"])


async def test_listing_and_deleting_by_prefix(blobs: Blobs) -> None:
    for key in ("tasks/a/1/x", "tasks/a/2/y", "tasks/ab/1/z"):
        await blobs.put(key, b"1", "text/plain")
    assert {b.key async for b in blobs.list("tasks/a/")} == {"tasks/a/1/x", "tasks/a/2/y"}
    await blobs.delete(["tasks/a/1/x", "tasks/a/2/y"])
    assert [b.key async for b in blobs.list("tasks/")] == ["tasks/ab/1/z"]


async def test_only_s3_hands_out_urls_and_they_hold_what_they_promise(s3: str, tmp_path: Path) -> None:
    assert await open_blobs(str(tmp_path)).url("x", 60) is None
    store = open_blobs(f"s3://vid/{tmp_path.name}", s3)
    await store.put("tasks/a/1/video.mp4", b"0123456789", "video/mp4")
    url = await store.url("tasks/a/1/video.mp4", 60)
    assert url
    async with httpx.AsyncClient() as client:
        whole = await client.get(url)
        assert (whole.status_code, whole.content) == (200, b"0123456789")
        assert whole.headers["content-type"] == "video/mp4"
        part = await client.get(url, headers={"Range": "bytes=2-4"})
        assert (part.status_code, part.content) == (206, b"234")
        assert (await client.get(url.replace("video.mp4", "other.mp4"))).status_code == 403
        assert (await client.get(url.split("?")[0])).status_code == 403
