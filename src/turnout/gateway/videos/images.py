"""First frames: what strangers upload becomes a plain PNG of the right size, under limits. Owns no storage."""

import base64
import binascii
import io

from PIL import Image, ImageOps

from turnout.domain.errors import InvalidRequest, TooLarge

_FORMATS = ("PNG", "JPEG", "WEBP")
_BASE64 = ";base64"


def fit(data: bytes, width: int, height: int, max_pixels: int, param: str) -> bytes:
    """`data` turned upright, cropped around its centre, scaled to width × height, as a PNG.

    Blocks for as long as it takes: call it in a thread.
    """
    try:
        _check(data, max_pixels, param)
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            opened.load()
            upright = ImageOps.exif_transpose(opened)
        picture = ImageOps.fit(_opaque(upright), (width, height), Image.Resampling.LANCZOS)
    except Image.DecompressionBombError as err:
        raise _too_many_pixels(max_pixels, param) from err
    except (OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, OverflowError) as err:
        # Pillow's decoders raise all of these for damaged files.
        raise InvalidRequest(
            "The image is not a readable PNG, JPEG or WebP.", param, "invalid_image"
        ) from err
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def from_data_url(url: str, param: str) -> bytes:
    """The bytes of a `data:image/…;base64,…` URL."""
    head, comma, payload = url.partition(",")
    if not comma or not head.startswith("data:image/") or not head.endswith(_BASE64):
        raise InvalidRequest("A data URL must be 'data:image/…;base64,…'.", param, "invalid_value")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as err:
        raise InvalidRequest("The data URL is not valid base64.", param, "invalid_value") from err


def _check(data: bytes, max_pixels: int, param: str) -> None:
    """Reads headers and checksums only, so that a bomb is refused before it is unpacked."""
    with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
        if opened.width * opened.height > max_pixels:
            raise _too_many_pixels(max_pixels, param)
        opened.verify()


def _too_many_pixels(max_pixels: int, param: str) -> TooLarge:
    return TooLarge(f"The image has over {max_pixels} pixels.", param, "image_too_large")


def _opaque(picture: Image.Image) -> Image.Image:
    """RGB; what was transparent becomes white."""
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    with_alpha = picture.convert("RGBA")
    paper = Image.new("RGBA", with_alpha.size, "white")
    return Image.alpha_composite(paper, with_alpha).convert("RGB")
