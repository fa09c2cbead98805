"""How long a step takes on so many GPUs, on paper: operations over measured rates, and messages over a link's bandwidth. Pure.

The rates are those of one H200 with FlashAttention 3 (docs/benchmarks-wan.md). With one GPU a step is within 2 % of what was measured in renders; a
rank's share of the work with Ulysses was measured on one GPU and is within 6 %. Nothing here was seen on several GPUs; that messages
overlap attention was seen between CPUs (benchmarks/overlap.py).
"""

from dataclasses import dataclass

_PRODUCTS = 709e12  # operations a second in bf16
_PRODUCTS_FP8 = 1280e12
_ATTENTION = 660e12  # 680 alone; at the power limit of a long clip less
_ATTENTION_FP8 = 880e12  # with the rounding before and the mean after it
_BETWEEN_S = 1.07e-11  # norms, rotation and residuals, for each number of [tokens, width] in each layer
_PACKING_S = 1.85e-7  # for each of a rank's tokens in each layer, before and after an exchange
_DECODE_S = 3.4e-8  # a pixel: A14B's VAE
_DECODE_WIDE_S = 4.7e-8  # TI2V-5B's
_NUMBER_BYTES = 2
_TEXT_TOKENS = 512
_BLOCK_NUMBERS = 11.4  # in a block's large products, for each square of its width: A14B; TI2V-5B has 15.3
_EMPTY_TOKENS = (
    64  # what a forward costs beside its tokens, as so many of them: seen on a CPU with a tiny model
)
EXACT_STEPS = 0.2  # the share of steps with exact attention, where the others have it in fp8

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


def relative_cost(
    tokens: int, width: int, ulysses: int = 1, fp8: bool = False, fp8_attention: bool = False
) -> float:
    """Of a forward beside others of the same model: how it grows with a clip, and what the options save. For a model of which no more
    is known than its width."""
    work = Workload(tokens + _EMPTY_TOKENS, width, 1, round(_BLOCK_NUMBERS * width**2))
    exact = work.forward_s(ulysses, fp8)
    if not fp8_attention:
        return exact
    return EXACT_STEPS * exact + (1 - EXACT_STEPS) * work.forward_s(ulysses, fp8, fp8_attention=True)


def finish_s(pixels: int, spatial: int) -> float:
    """Decoding so many pixels on an H200, with the mp4 beside it; `spatial` is the VAE's compression and tells which one it is."""
    return pixels * (_DECODE_S if spatial < 16 else _DECODE_WIDE_S)


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
