"""How much memory a clip takes beside the weights, so that one that cannot fit is refused before it starts.

Pure arithmetic. The factors are those of the largest moment of a forward and of a decode, measured on a GPU by
benchmarks/wan.py at 480p and 720p.
"""

from dataclasses import dataclass

from turnout.engines.wan.shape import WanShape
from turnout.tasks.video_rules import VideoSpec

# In tensors of [tokens, width]: the residual stream, queries, keys and values, and what is made of them. 11.0 were measured
# with one rank; with Ulysses 17 of a rank's tokens and 0.75 of all tokens, since what is sent and received is packed.
_TENSORS_ALONE = 11.5
_TENSORS_SHARED = 17.0
_TENSORS_WHOLE = 0.75
# Queries, keys and values a second time, in fp8, of which 0.5 lie above the largest moment with one rank. With Ulysses all of
# them are counted: that was not measured.
_TENSORS_FP8_ALONE = 0.75
_TENSORS_FP8_SHARED = 1.5
# Keys and values of two prompts, for each layer.
_TEXT_TENSORS = 4
_TEXT_TOKENS = 512
# What decoding holds for each pixel of a frame; a band takes rows along.
_DECODE_BYTES_PER_PIXEL = 9_600
_BAND_ROWS = 56
# On an H200 in bf16, whole: 8.1 GiB at 720p, 3.5 GiB at 480p. What is larger than 720p is decoded in bands, one after the
# other; a first frame is encoded in tiles, which leave faint differences where they overlap.
TILE_ABOVE_PIXELS = 1280 * 736
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What one rank needs for a clip."""

    shape: WanShape
    width: int
    """Of the transformer's residual stream."""
    number_bytes: int
    ulysses: int
    ranks: int
    """That decode."""
    tile_above_pixels: int
    fp8_attention: bool = False

    def needed_bytes(self, width: int, height: int, frames: int) -> int:
        return max(self._forward(width, height, frames), self._decode(width, height))

    def _forward(self, width: int, height: int, frames: int) -> int:
        tokens = self.shape.tokens(width, height, frames)
        alone, shared = _TENSORS_ALONE, _TENSORS_SHARED
        if self.fp8_attention:
            alone, shared = alone + _TENSORS_FP8_ALONE, shared + _TENSORS_FP8_SHARED
        held = alone * tokens
        if self.ulysses > 1:
            held = shared * tokens / self.ulysses + _TENSORS_WHOLE * tokens
        text = _TEXT_TENSORS * _TEXT_TOKENS * self.shape.layers
        return round((held + text) * self.width * self.number_bytes)

    def _decode(self, width: int, height: int) -> int:
        band = min(width * height // self.ranks, self.tile_above_pixels)
        at_once = min(width * height, band + _BAND_ROWS * width)
        return _DECODE_BYTES_PER_PIXEL * at_once * self.number_bytes // 2

    def fault(self, spec: VideoSpec, free_bytes: int) -> str | None:
        """Why the clip does not fit into `free_bytes`, and what would; None when it fits."""
        needed = self.needed_bytes(spec.width, spec.height, spec.frames)
        if needed <= free_bytes:
            return None
        return (
            f"{spec.frames} frames of {spec.width}x{spec.height} need about {needed / _GIB:.1f} GiB beside the "
            f"weights, and {free_bytes / _GIB:.1f} GiB are free; {self.instead(spec, free_bytes)}"
        )

    def instead(self, spec: VideoSpec, free_bytes: int) -> str:
        """A length, or else a size, that fits."""
        step = self.shape.scale_temporal
        # Fewest first: what is needed grows with the number of frames.
        fitting = 0
        for frames in range(1, spec.frames, step):
            if self.needed_bytes(spec.width, spec.height, frames) > free_bytes:
                break
            fitting = frames
        if fitting:
            return f"at most {fitting} frames of that size would fit"
        by_width, by_height = self.shape.size_multiple
        width, height = spec.width, spec.height
        while (width := width // 2 // by_width * by_width) and (
            height := height // 2 // by_height * by_height
        ):
            if self.needed_bytes(width, height, spec.frames) <= free_bytes:
                return f"{spec.frames} frames of {width}x{height} would fit"
        return "no clip of this length would fit"
