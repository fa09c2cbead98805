# pyright: reportUnknownMemberType=false
"""What a render is conditioned on: the prompt, what to avoid, and the first frame. Made on rank 0, same on all."""

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from turnout.engines.base import Unrenderable
from turnout.engines.wan.codec import Codec
from turnout.engines.wan.shape import WanShape
from turnout.engines.wan.text_encoder import TextEncoder
from turnout.tasks.video_rules import VideoSpec

# What the contract of an engine names; each further decoder would be one more that reads a stranger's bytes.
_FORMATS = ("PNG", "JPEG", "WEBP")
_SHORTEST_SIDE = 16
_MOST_PIXELS = 64_000_000


@dataclass(frozen=True, slots=True)
class Inputs:
    prompt: torch.Tensor
    negative: torch.Tensor | None
    """None when no stage of the render is guided."""
    image: torch.Tensor | None
    """i2v: mask and condition latents, to lie beside the noise. ti2v: latents of the first frame, to replace it."""

    def tensors(self) -> dict[str, torch.Tensor]:
        named = {"prompt": self.prompt, "negative": self.negative, "image": self.image}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @staticmethod
    def of(tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype) -> "Inputs":
        """On `device`, with the text in `dtype`: a checkpoint may come from an engine that computes in another one."""
        negative, image = tensors.get("negative"), tensors.get("image")
        return Inputs(
            prompt=tensors["prompt"].to(device, dtype),
            negative=None if negative is None else negative.to(device, dtype),
            image=None if image is None else image.to(device),
        )


def encode(
    spec: VideoSpec, image: bytes | None, shape: WanShape, text: TextEncoder, codec: Codec, dtype: torch.dtype
) -> Inputs:
    guided = max(spec.guidance) > 1
    return Inputs(
        prompt=text.encode(spec.prompt).to(dtype),
        negative=text.encode(spec.negative_prompt).to(dtype) if guided else None,
        image=None if image is None else _condition(_pixels(image, spec), spec, shape, codec),
    )


def _condition(first: torch.Tensor, spec: VideoSpec, shape: WanShape, codec: Codec) -> torch.Tensor:
    if shape.kind == "ti2v":
        return codec.encode(first)
    # i2v was trained on the VAE's view of the whole clip, with grey where frames are yet unknown.
    rest = first.new_zeros(1, 3, spec.frames - 1, spec.height, spec.width)
    latents = codec.encode(torch.cat([first, rest], dim=2))
    known = latents.new_zeros(1, shape.scale_temporal, *latents.shape[2:])
    known[:, :, 0] = 1
    return torch.cat([known, latents], dim=1)


def _pixels(image: bytes, spec: VideoSpec) -> torch.Tensor:
    """The image as one frame [1, 3, 1, H, W] in -1..1, scaled to cover the clip's size and cut in the middle."""
    upright = _upright(image)
    fitted = upright
    if upright.size != (spec.width, spec.height):
        fitted = ImageOps.fit(upright, (spec.width, spec.height), Image.Resampling.LANCZOS)
    scaled = torch.from_numpy(np.asarray(fitted).astype(np.float32) / 255.0)
    return 2.0 * scaled.permute(2, 0, 1)[None, :, None] - 1.0


def _upright(image: bytes) -> Image.Image:
    """The picture as a person sees it: turned as its EXIF says, in RGB, on white where it is transparent."""
    try:
        with Image.open(io.BytesIO(image), formats=_FORMATS) as opened:
            width, height = opened.size
            if min(width, height) < _SHORTEST_SIDE or width * height > _MOST_PIXELS:
                raise Unrenderable(
                    f"the first frame has {width}x{height} pixels; it needs at least {_SHORTEST_SIDE} on each side "
                    f"and at most {_MOST_PIXELS // 10**6} million in all"
                )
            return _opaque(ImageOps.exif_transpose(opened))
    except UnidentifiedImageError as err:
        names = ", ".join(_FORMATS)
        raise Unrenderable(f"the first frame is no image that can be read ({names} can)") from err
    except Unrenderable:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as err:
        raise Unrenderable(f"the first frame is no image that can be read: {err}") from err


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits a channel: converting them to 8 would only cut them off
        grey = np.asarray(image.convert("I"), dtype=np.float64) / 257.0
        return Image.fromarray(grey.clip(0, 255).round().astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
