"""What a Wan model can do, read from its json configs alone: no torch, no weights, milliseconds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

WanKind = Literal["t2v", "i2v", "ti2v"]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request gets when it does not say; guidance is (low-noise, high-noise), as Wan writes it."""

    steps: int
    shift: float
    guidance: tuple[float, float]
    fps: int


# The published settings of Wan2.2 T2V-A14B, I2V-A14B and TI2V-5B.
DEFAULTS: dict[WanKind, Defaults] = {
    "t2v": Defaults(steps=40, shift=12.0, guidance=(3.0, 4.0), fps=16),
    "i2v": Defaults(steps=40, shift=5.0, guidance=(3.5, 3.5), fps=16),
    "ti2v": Defaults(steps=50, shift=5.0, guidance=(5.0, 5.0), fps=24),
}


@dataclass(frozen=True, slots=True)
class WanShape:
    kind: WanKind
    heads: int
    layers: int
    patch: tuple[int, int, int]
    latent_channels: int
    scale_spatial: int
    scale_temporal: int
    boundary_ratio: float | None
    """Share of the noise schedule below which the second expert takes over; None with one expert."""
    experts: int
    defaults: Defaults

    @property
    def takes_image(self) -> bool:
        return self.kind != "t2v"

    @property
    def requires_image(self) -> bool:
        return self.kind == "i2v"

    @property
    def expand_timesteps(self) -> bool:
        """A timestep for each token, so that the first frame can stay as it was given."""
        return self.kind == "ti2v"

    @property
    def size_multiple(self) -> tuple[int, int]:
        """Width and height must be multiples of these."""
        return self.scale_spatial * self.patch[2], self.scale_spatial * self.patch[1]

    def latent_size(self, width: int, height: int, frames: int) -> tuple[int, int, int]:
        """Frames, height and width of the latents of such a clip."""
        return (
            (frames - 1) // self.scale_temporal + 1,
            height // self.scale_spatial,
            width // self.scale_spatial,
        )

    def tokens(self, width: int, height: int, frames: int) -> int:
        """How long the transformer's sequence is for such a clip."""
        t, h, w = self.latent_size(width, height, frames)
        return (t // self.patch[0]) * (h // self.patch[1]) * (w // self.patch[2])

    def fault(self, width: int, height: int, frames: int) -> str | None:
        """Why this model cannot render such a clip; None when it can."""
        by_width, by_height = self.size_multiple
        if width < by_width or height < by_height or width % by_width or height % by_height:
            return f"width and height must be multiples of {by_width} and {by_height}, not {width}x{height}"
        if frames < 1 or (frames - 1) % self.scale_temporal:
            return f"frames must be {self.scale_temporal}n+1, not {frames}"
        return None


def read_shape(weights: Path) -> WanShape:
    """The shape of the model in `weights`; ValueError when that is no Wan model this engine can run."""
    index = read_config(weights / "model_index.json")
    if not str(index.get("_class_name", "")).startswith("Wan"):
        raise ValueError(f"{weights} holds a {index.get('_class_name')}, not a Wan pipeline")
    transformer = read_config(weights / "transformer" / "config.json")
    vae = read_config(weights / "vae" / "config.json")
    if transformer.get("image_dim") is not None:
        raise ValueError(f"{weights} needs an image encoder (Wan2.1 image-to-video), which is not supported")

    z_dim = int(vae.get("z_dim", 16))
    kind: WanKind = "t2v"
    if index.get("expand_timesteps"):
        kind = "ti2v"
    elif int(transformer.get("in_channels", 16)) > z_dim:
        kind = "i2v"
    second = index.get("transformer_2")
    experts = 2 if isinstance(second, list) and cast("list[object]", second)[0] is not None else 1
    boundary = index.get("boundary_ratio")
    if experts == 2 and boundary is None:
        raise ValueError(f"{weights} has two experts but no boundary_ratio in model_index.json")
    p_t, p_h, p_w = transformer.get("patch_size", (1, 2, 2))
    return WanShape(
        kind=kind,
        heads=int(transformer["num_attention_heads"]),
        layers=int(transformer["num_layers"]),
        patch=(int(p_t), int(p_h), int(p_w)),
        latent_channels=z_dim,
        scale_spatial=int(vae.get("scale_factor_spatial") or 8),
        scale_temporal=int(vae.get("scale_factor_temporal") or 4),
        boundary_ratio=float(boundary) if experts == 2 and boundary is not None else None,
        experts=experts,
        defaults=DEFAULTS[kind],
    )


def read_config(path: Path) -> dict[str, Any]:
    """A json file of the model; ValueError when it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as err:
        raise ValueError(f"cannot read {path}: {err}") from err
