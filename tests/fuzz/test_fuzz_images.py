"""Damaged pictures: a PNG or a refusal, nothing else."""

import io
from contextlib import suppress

from PIL import Image
from tests.fuzz.runner import cases, damaged, watched

from turnout.errors import InvalidRequest
from turnout.tasks.image_fitting import FrameSize, fit

SIZE = FrameSize(48, 32, 1_000_000)


def corpus() -> list[bytes]:
    made: list[bytes] = []
    noise = Image.effect_noise((60, 40), 90)
    exif = Image.Exif()
    exif[0x0112] = 6
    for mode in ("RGB", "RGBA", "L", "P", "1", "CMYK"):
        for kind, options in (
            ("PNG", {}),
            ("JPEG", {"exif": exif}),
            ("JPEG", {"progressive": True}),
            ("WEBP", {"exif": exif}),
            ("WEBP", {"lossless": True, "save_all": True, "append_images": [noise.convert("RGB")]}),
        ):
            out = io.BytesIO()
            with suppress(OSError):  # not every mode in every format
                noise.convert(mode).save(out, kind, **options)
                made.append(out.getvalue())
    return made


def test_fuzz_images() -> None:
    pictures = corpus()
    with watched():
        for chance in cases():
            with suppress(InvalidRequest):
                fit(damaged(chance.choice(pictures), chance), SIZE)
