"""The tokenizer: one id a word of the captions' vocabulary; every other word is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from training.captions import UNKNOWN, vocabulary

PAD, END, UNK = "<pad>", "</s>", UNKNOWN
LONGEST = 47  # tokens of a caption, the end mark among them


@cache
def word_ids() -> dict[str, int]:
    return {word: i for i, word in enumerate([PAD, END, UNK, *vocabulary()])}


def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel(word_ids(), unk_token=UNK))
    core.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"[-_/;:!?]+"), " ")]
    )
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, word_ids()[END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNK,
        model_max_length=512,
        padding_side="right",
        truncation_side="right",
    )


def encode(captions: Sequence[str]) -> torch.Tensor:
    """Ids [N, LONGEST] as the tokenizer gives them, many times faster; captions must be as `captions` words them."""
    ids = word_ids()
    out = torch.zeros(len(captions), LONGEST, dtype=torch.int16)
    for row, text in enumerate(captions):
        known = [ids.get(word, ids[UNK]) for word in text.split()][: LONGEST - 1]
        out[row, : len(known) + 1] = torch.tensor([*known, ids[END]], dtype=torch.int16)
    return out
