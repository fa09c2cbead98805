"""The tokenizer: a word of the captions an id, a Chinese character an id, every other word letter by letter."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from training.captions import UNKNOWN, vocabulary

PAD, END, UNK = "<pad>", "</s>", UNKNOWN
LONGEST = 72  # tokens of a caption, the end mark among them
SHORT = 3  # letters: longer words are at times spelled
SPELLING, RESPELLED = 0.3, 0.25  # of captions; of such a caption's words
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


def _read(word: str, known: Mapping[str, int]) -> list[int]:
    """The pieces of `word` as the tokenizer would find them if `word` itself were unknown: the longest first."""
    out, at = [], 0
    while at < len(word):
        rest = (f"{'##' if at else ''}{word[at:end]}" for end in range(len(word), at, -1))
        piece = next(piece for piece in rest if piece in known and piece != word)
        out.append(known[piece])
        at += len(piece.removeprefix("##"))
    return out


@cache
def _spellings() -> dict[int, tuple[list[int], list[int]]]:
    """A word's id → the word by what it begins with ('leap', 's'), and by its letters."""
    known = word_ids()
    letters = {piece: i for piece, i in known.items() if len(piece) <= SHORT or piece.startswith("##")}
    words = [word for word in known if len(word) > SHORT and word.isascii() and word.isalpha()]
    return {known[word]: (_read(word, known), _read(word, letters)) for word in words}


def respelled(rng: random.Random, ids: Sequence[int]) -> list[int]:
    """`ids` with some words letter by letter, so that a form of a word which no caption holds is read by its letters."""
    spellings, out = _spellings(), []
    for each in ids:
        spelled = each in spellings and rng.random() < RESPELLED
        out += rng.choice(spellings[each]) if spelled else [each]
    return out


def encode(captions: Sequence[str], rng: random.Random | None = None) -> torch.Tensor:
    """Ids [N, LONGEST] as the tokenizer gives them; what is longer is cut. With `rng`, some words are spelled."""
    out = np.zeros((len(captions), LONGEST), dtype=np.int16)
    for row, found in enumerate(_core().encode_batch(list(captions))):
        ids = respelled(rng, found.ids) if rng and rng.random() < SPELLING else found.ids
        ids = ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], word_ids()[END]]
        out[row, : len(ids)] = ids
    return torch.from_numpy(out)


def published_ids(tokenizer: Path) -> dict[str, int]:
    """The ids that an exported `tokenizer.json` gives to words."""
    return json.loads(tokenizer.read_text())["model"]["vocab"]


def carried_over(rows: torch.Tensor, ids: Mapping[str, int], fresh: torch.Tensor) -> torch.Tensor:
    """Embeddings under today's ids: a word that had one in `rows` keeps it, a new one begins as in `fresh`."""
    out = fresh.clone()
    for word, i in word_ids().items():
        if word in ids:
            out[i] = rows[ids[word]]
    return out
