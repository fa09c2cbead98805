# pyright: reportUnknownMemberType=false
"""Prompts to embeddings, as the Wan models were trained to see them."""

import html
import re

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from turnout.engines.wan.text_model import Umt5Encoder

# The length every Wan checkpoint was trained with; shorter prompts are padded with zeros.
MAX_TOKENS = 512


def clean(prompt: str) -> str:
    """The prompt without markup escapes and runs of white space. (No ftfy: whether it happens to be installed
    must not change what a seed renders.)"""
    return re.sub(r"\s+", " ", html.unescape(html.unescape(prompt))).strip()


class TextEncoder:
    """UMT5 with its tokenizer."""

    def __init__(self, tokenizer: Tokenizer, model: Umt5Encoder, device: torch.device) -> None:
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer = tokenizer
        self._model = model
        self._device = device

    @torch.no_grad()
    def encode(self, prompt: str) -> torch.Tensor:
        """Embeddings [1, MAX_TOKENS, width]; what lies beyond the prompt is zero."""
        tokens = self._tokenizer.encode(clean(prompt)).ids
        hidden = self._model(torch.tensor(tokens, device=self._device))
        return functional.pad(hidden, (0, 0, 0, MAX_TOKENS - len(tokens)))[None]
