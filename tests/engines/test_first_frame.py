"""First frames as people send them: every format that is promised, turned, transparent, huge, tiny, broken."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from turnout.engines.base import Unrenderable
from turnout.tasks.video_rules import VideoSpec


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def half_red(width: int = 96, height: int = 64) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (width, height), "blue")
    image.paste("red", (0, 0, width // 2, height))
    return image


def pixels(image: bytes, spec: VideoSpec) -> Any:
    from turnout.engines.wan.inputs import _pixels

    return _pixels(image, spec)[0, :, 0].numpy()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_promised_formats_and_modes_are_read(spec: VideoSpec, form: str, mode: str) -> None:
    if (form, mode) == ("JPEG", "P"):
        mode = "CMYK"
    image = half_red().convert(mode)
    seen = pixels(saved(image, form), spec)
    assert seen.shape == (3, 64, 96) and seen.min() >= -1 and seen.max() <= 1
    if mode != "L":
        assert seen[0, 32, 10] > 0.8 and seen[2, 32, 90] > 0.8


def test_picture_is_turned_as_its_exif_says(spec: VideoSpec) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    turned = half_red(64, 96).rotate(90, expand=True)
    seen = pixels(saved(turned, "JPEG", exif=exif, quality=95), replace(spec, width=64, height=96))
    assert seen[0, 48, 5] > 0.8 and seen[2, 48, 60] > 0.8


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_transparent_parts_are_white(spec: VideoSpec, form: str) -> None:
    image = half_red().convert("RGBA")
    image.paste((0, 0, 0, 0), (0, 0, 48, 64))
    seen = pixels(saved(image, form, lossless=True), spec)
    assert seen[:, 32, 10].min() > 0.95
    assert seen[2, 32, 90] > 0.95 and seen[0, 32, 90] < -0.95


def test_palette_with_a_transparent_colour_is_read(spec: VideoSpec) -> None:
    image = half_red().quantize(2)
    red = int(np.asarray(image)[0, 0])
    assert pixels(saved(image, "PNG", transparency=red), spec)[:, 32, 10].min() > 0.95


def test_sixteen_bits_a_channel_are_scaled_not_cut_off(spec: VideoSpec) -> None:
    ramp = np.tile(np.linspace(0, 65535, 96).astype(np.uint16), (64, 1))
    seen = pixels(saved(Image.fromarray(ramp), "PNG"), spec)
    assert abs(float(seen[0, 32, 48])) < 0.05 and seen[0, 32, 0] == -1 and seen[0, 32, 95] == 1


def test_animation_gives_its_first_picture(spec: VideoSpec) -> None:
    first, second = half_red(), Image.new("RGB", (96, 64), "green")
    data = saved(first, "WEBP", save_all=True, append_images=[second], duration=100, lossless=True)
    assert pixels(data, spec)[0, 32, 10] > 0.95


def test_picture_of_a_camera_is_scaled_down(spec: VideoSpec) -> None:
    assert pixels(saved(half_red(4000, 3000), "JPEG"), spec).shape == (3, 64, 96)


def bomb(width: int, height: int) -> bytes:
    """A small file that says it holds a huge picture."""
    data = bytearray(saved(Image.new("1", (64, 64)), "PNG"))
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    import zlib

    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (saved(Image.new("RGB", (1, 1)), "PNG"), "at least 16"),
        (saved(Image.new("RGB", (4000, 3)), "PNG"), "at least 16"),
        (bomb(9000, 9000), "at most 64 million"),
        (bomb(100_000, 100_000), "no image"),
        (saved(Image.new("RGB", (64, 64)), "GIF"), "no image"),
        (saved(Image.new("RGB", (64, 64)), "TIFF"), "no image"),
        (saved(half_red(), "JPEG")[:300], "no image"),
        (saved(half_red(), "PNG")[:100], "no image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image"),
        (b"", "no image"),
    ],
)
def test_what_cannot_be_a_first_frame_is_refused(spec: VideoSpec, image: bytes, why: str) -> None:
    with pytest.raises(Unrenderable, match=why):
        pixels(image, spec)
