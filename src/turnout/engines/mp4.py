# pyright: reportUnknownMemberType=false
"""Turns decoded frames into the files a user sees: the clip, its thumbnail and its contact sheet.

The same frames give the same bytes, so that a resumed render can be compared with an undisturbed one.
"""

import io
import itertools
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from queue import SimpleQueue

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from PIL import Image

from turnout.engines.base import Frame
from turnout.engines.mark import Mark, marked

# x264's output depends on how many threads share the work (2.5 % of the size between 4 and 16), so their number is the same
# everywhere, not that of the free cores: as many as a large machine can use. On few cores they take no more time than few threads.
_ENCODER_THREADS = 16
# Visually lossless; the clip was dear to make, its bytes are not. Beside the preset `medium`, 832x480: frames with grain take 0.3
# of its CPU time, 0.88 to 0.95 of its bytes and lose 0.02 dB; perfectly smooth ones 0.44, 1.26 and 0.3 dB of 40.5.
# Without mbtree: it reads memory nobody wrote, and 1 in 200 encodes of the same frames came out different (measured
# with the x264 in PyAV 18.1, on one thread as on several; 0 in 3,000 without).
_OPTIONS = {"crf": "18", "preset": "veryfast", "x264-params": "mbtree=0"}

_SHEET_CELLS = 16
_SHEET_CELL_WIDTH = 240


def encode(frames: Iterable[Frame], fps: int, metadata: Mapping[str, str] | None = None) -> bytes:
    """An H.264 mp4 that plays while it downloads; sizes must be even (4:2:0 halves them). Frames are taken one by one."""
    # faststart moves the index to the front by reading the file again, which an in-memory file cannot do.
    with tempfile.TemporaryDirectory(prefix="turnout-mp4-") as folder:
        path = Path(folder) / "clip.mp4"
        _write(path, frames, fps, metadata or {})
        return path.read_bytes()


def encode_beside(frames: Iterable[Frame], fps: int, mark: Mark | None = None) -> tuple[list[Frame], bytes]:
    """All frames, and the mp4 of them: it is encoded on another thread while this one takes the next frames. With a `mark` both
    have it."""
    if mark is not None:
        frames = marked(frames)
    taken: list[Frame] = []
    waiting: SimpleQueue[Frame | None] = SimpleQueue()
    with ThreadPoolExecutor(1, "mp4") as thread:
        video = thread.submit(encode, _until_none(waiting), fps, mark and mark.metadata)
        try:
            for frame in frames:
                taken.append(frame)
                waiting.put(frame)
        finally:
            waiting.put(None)
        return taken, video.result()


def _until_none(waiting: "SimpleQueue[Frame | None]") -> Iterator[Frame]:
    while (frame := waiting.get()) is not None:
        yield frame


def _write(path: Path, frames: Iterable[Frame], fps: int, metadata: Mapping[str, str]) -> None:
    following = iter(frames)
    first = next(following, None)
    if first is None:
        raise ValueError("a clip has at least one frame")
    height, width, _ = first.shape
    if height % 2 or width % 2:
        raise ValueError(f"cannot encode frames of {width}x{height}: sizes must be even")
    flags = (
        "+faststart+use_metadata_tags" if metadata else "+faststart"
    )  # else names that are not mp4's own are left out
    with av.open(str(path), "w", format="mp4", options={"movflags": flags}) as container:
        container.metadata.update(metadata)
        stream = container.add_stream("libx264", rate=Fraction(fps), options=_OPTIONS)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.thread_count = _ENCODER_THREADS
        # Without these a player guesses the colour matrix from the height, and guesses wrong below 720p.
        stream.codec_context.color_range = ColorRange.MPEG
        stream.codec_context.colorspace = Colorspace.ITU709
        for frame in itertools.chain([first], following):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            picture = picture.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def thumbnail(frames: Sequence[Frame], width: int = 320) -> bytes:
    """A WebP of a frame in the middle, where a clip looks most like itself."""
    image = Image.fromarray(frames[len(frames) // 2])
    image.thumbnail((width, width), Image.Resampling.LANCZOS)
    return _saved(image, "WEBP", quality=80)


def picture(frame: Frame) -> bytes:
    """The frame as it is, as a PNG."""
    out = io.BytesIO()
    Image.fromarray(frame).save(out, "PNG")
    return out.getvalue()


def spritesheet(frames: Sequence[Frame]) -> bytes:
    """A JPEG grid of frames spread over the clip, in reading order."""
    count = min(_SHEET_CELLS, len(frames))
    picks = np.linspace(0, len(frames) - 1, count).round().astype(int)
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    height, width, _ = frames[0].shape
    cell_width = min(_SHEET_CELL_WIDTH, width)
    cell_height = max(1, round(height * cell_width / width))
    sheet = Image.new("RGB", (columns * cell_width, rows * cell_height))
    for place, pick in enumerate(picks):
        cell = Image.fromarray(frames[int(pick)]).resize((cell_width, cell_height), Image.Resampling.LANCZOS)
        sheet.paste(cell, (place % columns * cell_width, place // columns * cell_height))
    return _saved(sheet, "JPEG", quality=85)


def _saved(image: Image.Image, form: str, quality: int) -> bytes:
    out = io.BytesIO()
    image.save(out, form, quality=quality)
    return out.getvalue()
