"""First frames: what strangers upload becomes a plain PNG of the right size."""

from dataclasses import dataclass
from typing import Protocol

from turnout.domain.tasks import TenantId


@dataclass(frozen=True, slots=True)
class FrameSize:
    """What a picture is made to fit, and how many pixels it may have before."""

    width: int
    height: int
    max_pixels: int


class FrameFitter(Protocol):
    async def fit(self, data: bytes, size: FrameSize, tenant: TenantId) -> bytes:
        """`data` turned upright, cropped around its centre, scaled, as a PNG. Raises InvalidRequest for what is no picture
        or costs too much, TooLarge for too many pixels, Limited or Unavailable when too many wait."""
        ...

    async def aclose(self) -> None: ...
