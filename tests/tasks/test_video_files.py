"""Downloads: ranges, ETags, variants, and what is answered before there is anything."""

import base64
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.gateways import Gateway

from turnout.tasks.video_files import Span, Unsatisfiable, span_of

VIDEO = bytes(range(256)) * 4


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        (None, 10, None),
        ("bytes=0-", 10, Span(0, 10)),
        ("bytes=0-0", 10, Span(0, 1)),
        ("bytes=3-5", 10, Span(3, 6)),
        ("bytes=3-99", 10, Span(3, 10)),
        ("bytes=-4", 10, Span(6, 10)),
        ("bytes=-99", 10, Span(0, 10)),
        ("bytes=5-3", 10, None),
        ("bytes=-", 10, None),
        ("bytes=0-1,3-4", 10, None),
        ("items=0-1", 10, None),
        ("bytes=a-b", 10, None),
    ],
)
def test_a_range_becomes_a_span(header: str | None, size: int, expected: Span | None) -> None:
    assert span_of(header, size) == expected


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0)])
def test_a_range_past_the_end_is_unsatisfiable(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        span_of(header, size)


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,4}-\d{0,4}", fullmatch=True), st.integers(0, 2000))
def test_any_range_lies_inside_the_object_or_is_refused(header: str, size: int) -> None:
    try:
        span = span_of(header, size)
    except Unsatisfiable:
        return
    assert span is None or 0 <= span.start < span.end <= size


async def finished(gateway: Gateway) -> str:
    video = await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim(), VIDEO)
    return f"/v1/videos/{video}/content"


async def test_every_variant_comes_with_its_type(gateway: Gateway) -> None:
    path = await finished(gateway)
    whole = await gateway.http.get(path)
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, VIDEO, "video/mp4")
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["content-disposition"].startswith("inline; filename=")
    thumbnail = await gateway.http.get(path, params={"variant": "thumbnail"})
    assert (thumbnail.content, thumbnail.headers["content-type"]) == (b"thumb", "image/webp")
    sheet = await gateway.http.get(path, params={"variant": "spritesheet"})
    assert (sheet.content, sheet.headers["content-type"]) == (b"sprites", "image/jpeg")
    odd = await gateway.http.get(path, params={"variant": "sound"})
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "variant")


async def test_a_range_is_answered_in_part(gateway: Gateway) -> None:
    path = await finished(gateway)
    part = await gateway.http.get(path, headers={"range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, VIDEO[100:200])
    assert part.headers["content-range"] == "bytes 100-199/1024"
    assert part.headers["content-length"] == "100"
    tail = await gateway.http.get(path, headers={"range": "bytes=-24"})
    assert (tail.status_code, tail.content) == (206, VIDEO[-24:])
    past = await gateway.http.get(path, headers={"range": "bytes=1024-"})
    assert (past.status_code, past.headers["content-range"]) == (416, "bytes */1024")
    assert past.json()["error"]["code"] == "range_not_satisfiable"


async def test_an_etag_saves_a_download_and_guards_a_range(gateway: Gateway) -> None:
    path = await finished(gateway)
    etag = (await gateway.http.get(path)).headers["etag"]
    for known in (etag, f'"x", W/{etag}', "*"):
        again = await gateway.http.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    other = await gateway.http.get(path, headers={"if-none-match": '"x"'})
    assert other.status_code == 200
    same = await gateway.http.get(path, headers={"range": "bytes=0-9", "if-range": etag})
    changed = await gateway.http.get(path, headers={"range": "bytes=0-9", "if-range": '"old"'})
    assert (same.status_code, changed.status_code, changed.content) == (206, 200, VIDEO)


async def test_head_tells_the_size_without_the_bytes(gateway: Gateway) -> None:
    head = await gateway.http.head(await finished(gateway))
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "1024", b"")


async def test_a_store_with_urls_of_its_own_is_redirected_to(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await finished(gateway)

    async def presigned(key: str, expires_s: float) -> str:
        return f"https://store.example/{key}?signature=x"

    monkeypatch.setattr(gateway.blobs, "url", presigned)
    answer = await gateway.http.get(path)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("https://store.example/tasks/video_")
    assert (await gateway.http.head(path)).status_code == 200


async def test_before_the_end_there_is_a_preview_and_nothing_else(gateway: Gateway) -> None:
    video = await gateway.submit()
    path = f"/v1/videos/{video}/content"
    queued = await gateway.http.get(path)
    assert queued.status_code == 409
    assert queued.json()["error"] == {
        "message": "The video is queued: its video is not ready.",
        "type": "conflict_error",
        "param": "video_id",
        "code": "video_not_ready",
    }
    task = await gateway.gang.claim()
    none_yet = await gateway.http.get(path, params={"variant": "preview"})
    assert none_yet.json()["error"]["code"] == "video_not_ready"
    await gateway.gang.preview(task, 2, b"webp two")
    preview = await gateway.http.get(path, params={"variant": "preview"})
    assert (preview.content, preview.headers["content-type"]) == (b"webp two", "image/webp")
    shown = (await gateway.http.get(f"/v1/videos/{video}")).json()
    assert shown["preview_url"] == f"{path}?variant=preview"


async def test_a_cancelled_video_never_has_content(gateway: Gateway) -> None:
    video = await gateway.submit()
    await gateway.http.post(f"/v1/videos/{video}/cancel")
    answer = await gateway.http.get(f"/v1/videos/{video}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_content")


async def test_content_whose_object_is_gone_is_404(gateway: Gateway) -> None:
    path = await finished(gateway)
    await gateway.blobs.delete([b.key async for b in gateway.blobs.list("tasks/")])
    answer = await gateway.http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_content")


async def test_a_file_is_named_by_its_prompt_but_not_to_whoever_has_a_signed_url(gateway: Gateway) -> None:
    made = await gateway.http.post("/v1/videos", json={"prompt": "a red “fox”, 雪地里 / ../", "seed": 7})
    video = made.json()["id"]
    await gateway.gang.finish(await gateway.gang.claim(), VIDEO)
    own = (await gateway.http.get(f"/v1/videos/{video}/content")).headers["content-disposition"]
    plain, whole = (
        'filename="a-red-fox-7.mp4"',
        "filename*=UTF-8''a-red-fox-%E9%9B%AA%E5%9C%B0%E9%87%8C-7.mp4",
    )
    assert own == f"inline; {plain}; {whole}"
    url = (await gateway.http.get(f"/v1/videos/{video}")).json()["url"]
    signed = (await gateway.http.get(url)).headers["content-disposition"]
    assert "fox" not in signed and video in signed.replace("-", "_")


async def test_the_picture_that_a_video_began_with_comes_to_its_tenant_alone(gateway: Gateway) -> None:
    video = await gateway.submit()
    bare = await gateway.http.get(f"/v1/videos/{video}/input")
    assert (bare.status_code, bare.json()["error"]["code"]) == (404, "no_content")
    paper = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(paper, "PNG")
    asked = {"prompt": "x", "model": "wan-tiny-ti2v", "image_url": _data_url(paper.getvalue())}
    pictured = (await gateway.http.post("/v1/videos", json=asked)).json()["id"]
    kept = await gateway.http.get(f"/v1/videos/{pictured}/input")
    assert Image.open(io.BytesIO(kept.content)).getpixel((0, 0)) == (255, 0, 0)
    headers = {"authorization": "Bearer tk-a.b"}
    stranger = await gateway.http.get(f"/v1/videos/{pictured}/input", headers=headers)
    assert stranger.status_code == 401


def _data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


async def test_videos_that_were_asked_for_together_say_so(gateway: Gateway) -> None:
    for seed in (1, 2):
        await gateway.http.post("/v1/videos", json={"prompt": "x", "seed": seed, "batch": "mine-1"})
    await gateway.submit()
    page = (await gateway.http.get("/v1/videos")).json()["data"]
    assert [video["batch"] for video in page] == [None, "mine-1", "mine-1"]
    odd = await gateway.http.post("/v1/videos", json={"prompt": "x", "batch": "a b"})
    assert (odd.status_code, odd.json()["error"]["param"]) == (400, "batch")
