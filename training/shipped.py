"""Clips from model directories through the product's own engine, with the product's own defaults."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from PIL import Image

from turnout.engines.base import EngineSetup, Frames, Parallel
from turnout.engines.contract import whole_clip
from turnout.engines.wan.load import make_engine
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import Dtype
from turnout.tasks.video_rules import RequestedVideo, VideoSpec, settle

WEIGHTS = Path(__file__).parent.parent / "src" / "turnout" / "weights"


def as_clip(frames: Frames) -> torch.Tensor:
    """[T, 3, H, W] in 0..1."""
    return torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255


def as_png(picture: torch.Tensor) -> bytes:
    """A picture [3, H, W] in 0..1 as a caller would send it."""
    out = io.BytesIO()
    Image.fromarray((picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()).save(out, "PNG")
    return out.getvalue()


class Studio:
    """One shipped model on one rank."""

    def __init__(
        self,
        name: str,
        weights: Path = WEIGHTS,
        dtype: Dtype = "float32",
        device: str = "cpu",
        fp8: bool = False,
    ):
        self._rules = FAMILIES[name]
        self._fp8 = fp8
        self._engine = make_engine(EngineSetup(weights / name, Parallel(), device, dtype, fp8))

    def spec(self, prompt: str, seed: int, **wishes: float) -> VideoSpec:
        """`wishes` are further fields of the request, as `guided_share`."""
        wish = RequestedVideo(prompt=prompt, **wishes)  # pyright: ignore[reportArgumentType]
        return settle(wish, self._rules, ulysses=1, seed=seed, fp8=self._fp8)

    def render(self, prompt: str, seed: int, first: bytes | None = None, **wishes: float) -> torch.Tensor:
        rendering = self._engine.begin(self.spec(prompt, seed, **wishes), first)
        while rendering.step < rendering.of:
            rendering.advance()
        frames = whole_clip(rendering.decode())
        assert frames is not None
        return as_clip(frames)

    def shown(self, first: bytes) -> torch.Tensor:
        """What the VAE can show of a picture [3, H, W]."""
        codec = self._engine.model.codec
        with Image.open(io.BytesIO(first)) as image:
            pixels = torch.tensor(list(image.convert("RGB").tobytes()), dtype=torch.float32)
            pixels = pixels.view(image.height, image.width, 3).permute(2, 0, 1)
        return as_clip(next(codec.decode(codec.encode((pixels / 127.5 - 1)[None, :, None]))))[0]
