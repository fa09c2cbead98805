"""Decodes what strangers upload: `fit`, and the process that does nothing else.

    python -m turnout.tasks.image_fitting

reads pictures from its input and writes PNGs to its output, one after the other, under limits of CPU time and memory that
end the process. It has no files, no network and no secrets of ours.
"""

import io
import json
import os
import resource
import struct
import sys
from dataclasses import dataclass
from math import ceil
from typing import BinaryIO

from PIL import Image, ImageOps

from turnout.errors import InvalidRequest, TooLarge, TurnoutError


@dataclass(frozen=True, slots=True)
class FrameSize:
    """What a picture is made to fit, and how many pixels it may have before."""

    width: int
    height: int
    max_pixels: int


JOB = struct.Struct("!IIII")  # width, height, max_pixels, bytes that follow
ANSWER = struct.Struct("!BI")  # done or refused, bytes that follow
DONE, REFUSED = 0, 1
CPU_S = 4  # a picture of 16 million pixels takes a tenth of this

_FORMATS = ("PNG", "JPEG", "WEBP")
_MAX_SCANS = 32  # of a progressive JPEG; encoders write about ten, and each is decoded over all pixels
_BASE_BYTES = 512 * 2**20  # the interpreter and Pillow
_BYTES_A_PIXEL = 24  # several copies while it is turned, made opaque and scaled
_MAX_PIXELS = 2**28


def fit(data: bytes, size: FrameSize) -> bytes:
    """The contract is `FrameFitter.fit`. Blocks for as long as it takes."""
    try:
        _check(data, size.max_pixels)
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            opened.load()
            upright = ImageOps.exif_transpose(opened)
        picture = ImageOps.fit(_opaque(upright), (size.width, size.height), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        picture.save(out, "PNG")
        return out.getvalue()
    except TurnoutError:
        raise
    except Image.DecompressionBombError as err:
        raise _too_many_pixels(size.max_pixels) from err
    except Exception as err:
        raise unreadable() from err


def unreadable() -> InvalidRequest:
    return InvalidRequest("The image is not a readable PNG, JPEG or WebP.", code="invalid_image")


def too_costly() -> InvalidRequest:
    return InvalidRequest("The image takes too much time or memory to decode.", code="image_too_costly")


def _check(data: bytes, max_pixels: int) -> None:
    """Reads headers and checksums only, so that a bomb is refused before it is unpacked."""
    with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
        if opened.width * opened.height > max_pixels:
            raise _too_many_pixels(max_pixels)
        if opened.format == "JPEG" and data.count(b"\xff\xda") > _MAX_SCANS:
            raise too_costly()
        opened.verify()


def _too_many_pixels(max_pixels: int) -> TooLarge:
    return TooLarge(f"The image has over {max_pixels} pixels.", code="image_too_large")


def _opaque(picture: Image.Image) -> Image.Image:
    """RGB; what was transparent becomes white."""
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    with_alpha = picture.convert("RGBA")
    paper = Image.new("RGBA", with_alpha.size, "white")
    return Image.alpha_composite(paper, with_alpha).convert("RGB")


def _answer(data: bytes, size: FrameSize) -> tuple[int, bytes]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = ceil(used.ru_utime + used.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))  # past it this process is killed
    try:
        return DONE, fit(data, size)
    except TurnoutError as err:
        return REFUSED, json.dumps([err.status, err.message, err.code]).encode()


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Returns at the end of the input."""
    while len(head := jobs.read(JOB.size)) == JOB.size:
        width, height, max_pixels, length = JOB.unpack(head)
        kind, content = _answer(jobs.read(length), FrameSize(width, height, min(max_pixels, _MAX_PIXELS)))
        answers.write(ANSWER.pack(kind, len(content)) + content)
        answers.flush()


def main() -> None:
    max_pixels = int(sys.argv[1])
    memory = _BASE_BYTES + _BYTES_A_PIXEL * min(max_pixels, _MAX_PIXELS)
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 16),
    ):
        resource.setrlimit(what, (most, most))
    os.nice(5)  # requests of others come first
    Image.init()
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
