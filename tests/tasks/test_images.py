"""First frames: turned, cropped, scaled; and the ways in which a picture can be an attack."""

import base64
import io
import struct
import zlib

import pytest
from PIL import Image
from tests.gateways import Gateway, picture

from turnout.errors import InvalidRequest, TooLarge
from turnout.tasks.image_fitting import FrameSize, fit

LIMIT = 1_000_000


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_becomes_a_png_of_the_right_size(kind: str) -> None:
    made = Image.open(io.BytesIO(fit(picture(300, 200, kind), FrameSize(64, 128, LIMIT))))
    assert (made.format, made.size, made.mode) == ("PNG", (64, 128), "RGB")


def test_the_centre_is_kept() -> None:
    wide = Image.new("RGB", (300, 100), "blue")
    wide.paste("red", (100, 0, 200, 100))
    out = io.BytesIO()
    wide.save(out, "PNG")
    made = opened(fit(out.getvalue(), FrameSize(32, 32, LIMIT)))
    assert {made.getpixel((x, y)) for x in (4, 16, 28) for y in (0, 31)} == {(255, 0, 0)}


def test_a_photo_that_lies_on_its_side_is_turned_upright() -> None:
    photo = Image.new("RGB", (100, 50), "blue")
    photo.paste("red", (0, 0, 50, 50))  # red is left; orientation 6 makes the left side the top
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    photo.save(out, "JPEG", exif=exif, quality=95)
    made = opened(fit(out.getvalue(), FrameSize(50, 100, LIMIT)))
    top = made.getpixel((25, 10))
    assert isinstance(top, tuple) and top[0] > 200 > top[2]


def test_what_is_transparent_becomes_white() -> None:
    out = io.BytesIO()
    Image.new("RGBA", (10, 10), (255, 0, 0, 0)).save(out, "PNG")
    assert opened(fit(out.getvalue(), FrameSize(16, 16, LIMIT))).getpixel((5, 5)) == (255, 255, 255)


@pytest.mark.parametrize(("width", "height"), [(5000, 5000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_a_bomb_is_refused_before_it_is_unpacked(width: int, height: int) -> None:
    with pytest.raises(TooLarge, match="The image has over 1000000 pixels") as caught:
        fit(bomb(width, height), FrameSize(64, 64, LIMIT))
    assert caught.value.code == "image_too_large"


GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a picture",
        GIF,
        picture()[:-20],
        picture()[:30],
        bomb(100, 100),
        picture(kind="JPEG")[:200],
        picture(kind="WEBP")[:-10],
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89PNG\r\n\x1a\n" + b"\xff" * 100,
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a readable PNG, JPEG or WebP") as caught:
        fit(data, FrameSize(64, 64, LIMIT))
    assert caught.value.code == "invalid_image"


async def test_a_bomb_over_http_is_413_and_leaves_nothing(gateway: Gateway) -> None:
    answer = await gateway.http.post(
        "/v1/videos", data={"prompt": "x"}, files={"input_reference": ("a.png", bomb(50_000, 50_000))}
    )
    assert answer.status_code == 413
    assert answer.json()["error"] == {
        "message": "The image has over 16000000 pixels.",
        "type": "invalid_request_error",
        "param": "input_reference",
        "code": "image_too_large",
    }
    assert [b async for b in gateway.blobs.list("tasks/")] == []
    assert (await gateway.http.get("/v1/videos")).json()["data"] == []


async def test_a_data_url_is_a_first_frame_in_json_and_in_forms(gateway: Gateway) -> None:
    url = "data:image/png;base64," + base64.b64encode(picture()).decode()
    answers = [
        await gateway.http.post("/v1/videos", json={"prompt": "x", "image_url": url}),
        await gateway.http.post("/v1/videos", json={"prompt": "x", "input_reference": {"image_url": url}}),
        await gateway.http.post("/v1/videos", files={"prompt": (None, "x"), "image_url": (None, url)}),
        await gateway.http.post(
            "/v1/videos", files={"prompt": (None, "x"), "input_reference[image_url]": (None, url)}
        ),
    ]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        frame = await gateway.blobs.get(f"tasks/{answer.json()['id']}/input.png")
        assert Image.open(io.BytesIO(frame)).size == (128, 128)
