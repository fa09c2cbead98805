"""A picture that is decoded in bands has the bytes of one that is decoded whole."""

from typing import Any

import numpy as np
import pytest

from turnout.engines.wan.bands import BlockReach, Rows, rows_needed

# As Wan2.1's decoder has them, and a small one with as many doublings.
WAN = [BlockReach(6, True), BlockReach(6, True), BlockReach(6, True), BlockReach(6, False)]


def test_rows_are_split_evenly_and_the_first_part_is_never_empty() -> None:
    assert [len(part) for part in Rows(0, 90).split(4)] == [23, 22, 23, 22]
    assert [(part.begin, part.end) for part in Rows(10, 13).split(4)] == [
        (10, 11),
        (11, 12),
        (12, 13),
        (13, 13),
    ]


def test_a_band_takes_along_less_from_block_to_block() -> None:
    needed = rows_needed(WAN, Rows(40, 50), 90)
    more = [
        (40 - rows.begin / scale, rows.end / scale - 50)
        for rows, scale in zip(needed, (1, 2, 4, 8), strict=True)
    ]
    assert more == [(13, 13), (6, 6), (2.5, 2.5), (0.875, 0.875)]


def test_the_whole_picture_needs_no_more_than_there_is() -> None:
    assert rows_needed(WAN, Rows(0, 90), 90) == [Rows(0, 90 * scale) for scale in (1, 2, 4, 8)]


@pytest.fixture(scope="module", params=["t2v", "ti2v"])
def codec(request: pytest.FixtureRequest, single_thread: None) -> Any:
    """Small VAEs of both kinds, with as many layers as the published ones."""
    import torch

    from turnout.engines.wan.codec import Codec
    from turnout.engines.wan.library_classes import AutoencoderKLWan

    torch.manual_seed(0)
    if request.param == "t2v":
        vae = AutoencoderKLWan(base_dim=8)
    else:
        vae = AutoencoderKLWan(
            base_dim=8,
            decoder_base_dim=8,
            z_dim=48,
            latents_mean=[0.1] * 48,
            latents_std=[0.7] * 48,
            is_residual=True,
            in_channels=12,
            out_channels=12,
            patch_size=2,
            scale_factor_spatial=16,
        )
    return Codec(vae.requires_grad_(False).eval())


def some_latents(codec: Any, *size: int) -> Any:
    import torch

    return torch.randn(1, codec._mean.shape[1], *size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("parts", [2, 5])
def test_bands_make_the_whole_picture(codec: Any, parts: int) -> None:
    latents = some_latents(codec, 2, 38, 2)
    whole = list(codec.decode(latents))
    assert [len(part) for part in whole] == [1, 4]
    bands = [list(codec.decode(latents, rows)) for rows in Rows(0, 38).split(parts)]
    for place, part in enumerate(whole):
        pieced = np.concatenate([band[place] for band in bands], axis=1)
        off = np.abs(part.astype(int) - pieced)
        # PyTorch's convolutions round by the height of what they are given.
        assert off.max() <= 1
        assert np.count_nonzero(off) < off.size / 5_000


def test_frames_are_those_of_the_library(codec: Any) -> None:
    import torch

    latents = some_latents(codec, 2, 6, 4)
    with torch.no_grad():
        pixels = codec._vae.decode(latents / codec._scale + codec._mean).sample
    expected = ((pixels[0] / 2 + 0.5).clamp(0, 1) * 255).round().permute(1, 2, 3, 0).to(torch.uint8).numpy()
    assert np.array_equal(np.concatenate(list(codec.decode(latents))), expected)
