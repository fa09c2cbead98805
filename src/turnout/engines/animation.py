"""Small moving pictures of a clip that is not finished. Apart from `mp4`, because a rank that only computes needs no encoder."""

import io

from PIL import Image

from turnout.engines.base import Frames

_LONG_SIDE = 256


def animation(frames: Frames, width: int, height: int, frame_ms: int) -> bytes:
    """An animated WebP of a clip that will be `width` x `height`; its frames may be coarser, as previews are."""
    shrink = min(1.0, _LONG_SIDE / max(width, height))
    size = (max(1, round(width * shrink)), max(1, round(height * shrink)))
    first, *rest = (Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC) for frame in frames)
    out = io.BytesIO()
    # method=0: previews are made between steps, while every GPU of the gang waits.
    first.save(
        out, "WEBP", save_all=True, append_images=rest, duration=frame_ms, loop=0, quality=60, method=0
    )
    return out.getvalue()
