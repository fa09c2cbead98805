"""Prompts to embeddings, as the Wan models were trained to see them."""

import html
import re
from typing import Any

import torch

# The length every Wan checkpoint was trained with; shorter prompts are padded with zeros.
MAX_TOKENS = 512


def clean(prompt: str) -> str:
    """The prompt without markup escapes and runs of white space. (No ftfy: whether it happens to be installed
    must not change what a seed renders.)"""
    return re.sub(r"\s+", " ", html.unescape(html.unescape(prompt))).strip()


class TextEncoder:
    """UMT5 with its tokenizer."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self._tokenizer = tokenizer
        self._model = model

    @torch.no_grad()
    def encode(self, prompt: str) -> torch.Tensor:
        """Embeddings [1, MAX_TOKENS, width]; what the tokenizer padded is zero."""
        tokens = self._tokenizer(
            [clean(prompt)],
            padding="max_length",
            max_length=MAX_TOKENS,
            truncation=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        mask: torch.Tensor = tokens.attention_mask.to(self._model.device)
        hidden: torch.Tensor = self._model(tokens.input_ids.to(self._model.device), mask).last_hidden_state
        hidden = hidden.clone()
        hidden[:, int(mask.sum()) :] = 0
        return hidden
