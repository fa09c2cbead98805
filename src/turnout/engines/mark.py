"""The mark that says of a clip that a model made it: in every frame for people, and in the file's metadata for programs.

`mark.png` has the words as they are seen, because no font on a machine that renders may have Chinese letters.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from turnout.engines.base import Frame

WORDS = "AI 生成 / AI-generated"
_HEIGHT = 0.075  # of the frame's shorter side; the letters have two thirds of that
_MOST_WIDTH = 0.6  # of the frame's width
_SHADE = 0.55


@dataclass(frozen=True, slots=True)
class Mark:
    """Who made the clip, and under which id."""

    producer: str
    id: str

    @property
    def metadata(self) -> Mapping[str, str]:
        """`AIGC` is the field that China's GB 45438-2025 names; Label 1: it is generated."""
        told = {"Label": "1", "ContentProducer": self.producer, "ProduceID": self.id}
        return {"comment": WORDS, "AIGC": json.dumps(told, ensure_ascii=False)}


def marked(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The frames with the mark in the lower right corner, light on dark."""
    for frame in frames:
        height, width, _ = frame.shape
        letters = _letters(width, height)
        rows, columns, _ = letters.shape
        out = frame.copy()
        corner = out[height - rows :, width - columns :]
        corner[:] = np.maximum(corner * (1 - _SHADE), letters * 255.0).round().astype(np.uint8)
        yield out


@lru_cache(maxsize=8)
def _letters(width: int, height: int) -> np.ndarray:
    """How light the mark is in each place, of a frame of this size."""
    with Image.open(Path(__file__).with_name("mark.png")) as found:
        picture = found.convert("L")
    scale = min(_HEIGHT * min(width, height) / picture.height, _MOST_WIDTH * width / picture.width)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    return (np.asarray(picture.resize(size, Image.Resampling.LANCZOS), np.float32) / 255.0)[:, :, None]
