"""Rotary position embeddings over time, height and width, as Wan's transformers were trained with them."""

from dataclasses import dataclass

import torch

_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angle of each pair of channels at each token, the same for all heads: [tokens, head width / 2], float32."""

    cos: torch.Tensor
    sin: torch.Tensor


def rotation(grid: tuple[int, int, int], head_width: int, device: torch.device) -> Rotation:
    """The angles of a grid of tokens (time, height, width), in the order of the flattened sequence."""
    space = 2 * (head_width // 6)
    widths = (head_width - 2 * space, space, space)
    angles: list[torch.Tensor] = []
    for axis, (length, width) in enumerate(zip(grid, widths, strict=True)):
        # float64, and on the CPU: the same angles on every device.
        rates = 1.0 / (_THETA ** (torch.arange(0, width, 2, dtype=torch.float64) / width))
        along = torch.outer(torch.arange(length, dtype=torch.float64), rates)
        shape = [1, 1, 1, width // 2]
        shape[axis] = length
        angles.append(along.view(shape).expand(*grid, -1))
    table = torch.cat(angles, dim=-1).flatten(0, 2)
    return Rotation(table.cos().float().to(device), table.sin().float().to(device))
