"""Muon: momentum made orthogonal, for the square-ish matrices of the experts; AdamW for everything else.

Matrices of one shape are orthogonalized together as a batch, so that a step costs a few dozen kernels.
Updates are scaled to the size that AdamW's have, so that both share one learning rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch


def _orthogonal(stack: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz iteration towards the nearest semi-orthogonal matrices [n, a, b]."""
    tall = stack.shape[-2] > stack.shape[-1]
    x = stack.transpose(-1, -2) if tall else stack
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.transpose(-1, -2) if tall else x


class Muon:
    def __init__(self, weights: Iterable[torch.nn.Parameter], decay: float = 0.01, momentum: float = 0.95):
        self._shapes: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for weight in weights:
            self._shapes[weight.shape].append(weight)
        self._memory = {shape: [torch.zeros_like(w) for w in group] for shape, group in self._shapes.items()}
        self._decay, self._momentum = decay, momentum

    @torch.no_grad()
    def step(self, lr: torch.Tensor) -> None:
        for shape, group in self._shapes.items():
            memory, grads = self._memory[shape], [w.grad for w in group]
            torch._foreach_lerp_(memory, grads, 1 - self._momentum)
            ahead = torch._foreach_lerp(grads, memory, self._momentum)
            stack = torch.stack(ahead)
            fast = torch.bfloat16 if stack.is_cuda else torch.float32
            update = _orthogonal(stack.to(fast)).float() * (0.2 * max(shape) ** 0.5)
            torch._foreach_mul_(group, 1 - lr * self._decay)
            torch._foreach_sub_(group, list((update * lr).unbind(0)))
