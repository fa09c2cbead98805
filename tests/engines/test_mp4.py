"""The files that users see."""

import io
import json

import av
import numpy as np
import pytest
from PIL import Image

from turnout.engines import mp4
from turnout.engines.base import Frames
from turnout.engines.mark import Mark, marked


def test_clip_has_the_frames_the_rate_and_the_size_it_was_given(moving_frames: Frames) -> None:
    with av.open(io.BytesIO(mp4.encode(moving_frames, fps=16)), "r") as clip:
        stream = clip.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in clip.decode(stream)]
        assert len(pictures) == len(moving_frames)
        assert stream.average_rate == 16
        assert (stream.width, stream.height, stream.pix_fmt) == (96, 64, "yuv420p")
        assert stream.codec_context.name == "h264"


def test_clip_keeps_its_colours(moving_frames: Frames) -> None:
    with av.open(io.BytesIO(mp4.encode(moving_frames, fps=16)), "r") as clip:
        pictures = np.stack([frame.to_ndarray(format="rgb24") for frame in clip.decode(video=0)])
    off = np.abs(pictures.astype(int) - moving_frames.astype(int))
    assert off.mean() < 3


def test_clip_plays_before_it_is_whole(moving_frames: Frames) -> None:
    data = mp4.encode(moving_frames, fps=16)
    assert 0 < data.index(b"moov") < data.index(b"mdat")


def test_same_frames_give_the_same_bytes(moving_frames: Frames) -> None:
    """Also in memory that others have used: an encoder that reads what it never wrote shows up in some of these."""
    random = np.random.default_rng()
    clips: set[bytes] = set()
    for _ in range(100):
        used = [random.integers(0, 256, random.integers(1_000, 400_000), dtype=np.uint8) for _ in range(10)]
        del used
        clips.add(mp4.encode(moving_frames.copy(), fps=24))
    assert len(clips) == 1


def test_odd_sizes_are_refused(moving_frames: Frames) -> None:
    with pytest.raises(ValueError, match="even"):
        mp4.encode(moving_frames[:, :63], fps=16)


def test_one_frame_makes_a_clip(moving_frames: Frames) -> None:
    with av.open(io.BytesIO(mp4.encode(moving_frames[:1], fps=16)), "r") as clip:
        assert len(list(clip.decode(video=0))) == 1


def test_thumbnail_is_a_frame_from_the_middle(moving_frames: Frames) -> None:
    image = Image.open(io.BytesIO(mp4.thumbnail(list(moving_frames))))
    assert (image.format, image.size) == ("WEBP", (96, 64))
    middle = moving_frames[len(moving_frames) // 2].astype(int)
    assert np.abs(np.asarray(image.convert("RGB")).astype(int) - middle).mean() < 8


@pytest.mark.parametrize(("count", "size"), [(1, (96, 64)), (5, (288, 128)), (17, (384, 256))])
def test_spritesheet_spreads_frames_over_a_grid(
    moving_frames: Frames, count: int, size: tuple[int, int]
) -> None:
    image = Image.open(io.BytesIO(mp4.spritesheet(list(moving_frames[:count]))))
    assert (image.format, image.size) == ("JPEG", size)


def test_a_marked_clip_says_in_its_frames_and_its_metadata_that_it_is_generated() -> None:
    """Decoded again: the letters stand in the lower right corner of every frame, and nothing else has changed."""
    black, sky = np.zeros((480, 832, 3), np.uint8), np.full((480, 832, 3), (90, 160, 230), np.uint8)
    plain = [black, black, sky, sky]
    taken, data = mp4.encode_beside(iter(plain), 16, Mark("体验中心", "video_1"))
    with av.open(io.BytesIO(data), "r") as clip:
        told = dict(clip.metadata)
        shown = [frame.to_ndarray(format="rgb24").astype(int) for frame in clip.decode(video=0)]
    assert told["comment"] == "AI 生成 / AI-generated"
    assert json.loads(told["AIGC"]) == {"Label": "1", "ContentProducer": "体验中心", "ProduceID": "video_1"}
    for frame, before in zip(shown, plain, strict=True):
        rows, columns = np.nonzero(frame.min(axis=2) > 235)
        assert rows.min() >= 480 * 0.9 and columns.min() >= 832 * 0.6, "they are where they should be"
        assert rows.max() - rows.min() >= 480 * 0.04 and columns.max() - columns.min() >= 832 * 0.2
        off = np.abs(frame[: int(480 * 0.9)] - before[: int(480 * 0.9)].astype(int))
        assert off.max() < 16, "the rest of the picture is as it was"
    assert all(np.array_equal(one, before) is False for one, before in zip(taken, plain, strict=True))
    assert not black.any(), "what the engine gave is left alone"
    without = mp4.encode_beside(iter(plain), 16)[1]
    assert b"AIGC" in data and b"AIGC" not in without


@pytest.mark.parametrize(("width", "height"), [(128, 128), (480, 832), (1280, 720), (16, 16)])
def test_the_mark_fits_frames_of_any_size(width: int, height: int) -> None:
    [frame] = marked([np.zeros((height, width, 3), np.uint8)])
    rows, columns = np.nonzero(frame.max(axis=2) > 60)
    assert frame.shape == (height, width, 3) and (len(rows) > 0 or width < 32)
    assert len(columns) == 0 or columns.min() >= width * 0.35
