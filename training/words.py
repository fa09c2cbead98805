"""The tokenizer: a word of the captions an id, a Chinese character an id, every other word letter by letter."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from training.captions import UNKNOWN, vocabulary

PAD, END, UNK = "<pad>", "</s>", UNKNOWN
LONGEST = 72  # tokens of a caption, the end mark among them
_ENDINGS = (
    "s",
    "es",
    "ed",
    "ing",
    "er",
    "est",
    "ly",
    "ish",
    "y",
    "ness",
    "like",
    "ward",
    "wards",
    "shaped",
    "sized",
    "colored",
    "coloured",
)


@cache
def word_ids() -> dict[str, int]:
    known = [PAD, END, UNK, ",", ".", *vocabulary()]
    letters = string.ascii_lowercase + string.digits
    pieces = [*letters, *(f"##{c}" for c in letters), *(f"##{ending}" for ending in _ENDINGS)]
    return {word: i for i, word in enumerate(dict.fromkeys([*known, *pieces]))}


@cache
def _core() -> Tokenizer:
    core = Tokenizer(models.WordPiece(word_ids(), unk_token=UNK, max_input_chars_per_word=40))
    core.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"['’]"), ""),
            normalizers.Replace(Regex(r"[.!?。]+"), " . "),
            normalizers.Replace(Regex(r"[,、;:/()]+"), " , "),
            normalizers.Replace(Regex(r"[^\p{L}\p{N},.]+"), " "),
        ]
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated")]
    )
    core.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, word_ids()[END])]
    )
    return core


def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=_core(),
        pad_token=PAD,
        eos_token=END,
        unk_token=UNK,
        model_max_length=512,
        padding_side="right",
        truncation_side="right",
    )


def encode(captions: Sequence[str]) -> torch.Tensor:
    """Ids [N, LONGEST] as the tokenizer gives them; what is longer is cut."""
    out = np.zeros((len(captions), LONGEST), dtype=np.int16)
    for row, found in enumerate(_core().encode_batch(list(captions))):
        ids = found.ids if len(found.ids) <= LONGEST else [*found.ids[: LONGEST - 1], word_ids()[END]]
        out[row, : len(ids)] = ids
    return torch.from_numpy(out)
