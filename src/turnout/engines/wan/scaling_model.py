"""How long a step takes on so many GPUs, on paper: operations over measured rates, and messages over a link's bandwidth. Pure.

The rates are those of one H200 with FlashAttention 3 (docs/wan.md). With one GPU the estimate is within 2 % of what was measured; a
rank's share of the work with Ulysses was measured on one GPU and is within 6 %. Nothing here was seen on several GPUs; that messages
overlap attention was seen between CPUs (benchmarks/overlap.py).
"""

from dataclasses import dataclass

_PRODUCTS = 709e12  # operations a second in bf16
_PRODUCTS_FP8 = 1323e12
_ATTENTION = 683e12
_ATTENTION_FP8 = 880e12  # with the rounding before and the mean after it
_BETWEEN_S = 1.07e-11  # norms, rotation and residuals, for each number of [tokens, width] in each layer
_PACKING_S = 1.85e-7  # for each of a rank's tokens in each layer, before and after an exchange
_NUMBER_BYTES = 2
_TEXT_TOKENS = 512

NVLINK = 350e9
"""Bytes a second that a GPU sends. 42e9 and 21e9 stand for networks of 400 and 200 Gb/s."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One forward of one expert: the width of its stream, its layers, and the numbers in each layer's large products."""

    tokens: int
    width: int
    layers: int
    product_numbers: int

    def forward_s(
        self,
        ulysses: int = 1,
        fp8: bool = False,
        fp8_attention: bool = False,
        link: float = NVLINK,
        pieces: int = 1,
    ) -> float:
        """With attention in so many pieces: several where Ulysses' ranks are on several machines."""
        mine = self.tokens / ulysses
        products = 2 * mine * self.product_numbers / (_PRODUCTS_FP8 if fp8 else _PRODUCTS)
        attention = 4 * mine * self.tokens * self.width / (_ATTENTION_FP8 if fp8_attention else _ATTENTION)
        to_text = 4 * mine * _TEXT_TOKENS * self.width / _ATTENTION
        between = mine * self.width * _BETWEEN_S
        if ulysses > 1:
            # A rank keeps its own part.
            sent_s = mine * self.width * _NUMBER_BYTES * (ulysses - 1) / ulysses / link
            attention = attended_s(attention, sent_s, pieces) + mine * _PACKING_S
        return self.layers * (products + attention + to_text + between)

    def step_s(
        self,
        ulysses: int = 1,
        cfg: int = 1,
        fp8: bool = False,
        fp8_attention: bool = False,
        link: float = NVLINK,
        pieces: int = 1,
    ) -> float:
        """With guidance: two forwards, side by side with `cfg` 2."""
        return self.forward_s(ulysses, fp8, fp8_attention, link, pieces) * 2 / cfg


def attended_s(attention_s: float, sent_s: float, pieces: int) -> float:
    """Of attention with its exchanges, where sending one of queries, keys, values and result takes `sent_s`.

    The order is `SequenceShare.attended`'s; the link carries one message after the other.
    """
    computing, back = attention_s / pieces, sent_s / pieces
    here = link_free = 3 * back
    computed = 0.0
    for left in reversed(range(pieces)):
        arrived = here
        if left:
            here = link_free = max(link_free, arrived) + 3 * back
        computed = max(computed, arrived) + computing
        link_free = max(link_free, computed) + back
    return link_free
