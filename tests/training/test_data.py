"""The drawn world: what is held out stays out, words match the tokenizer, the checker reads what was drawn."""

import random
from itertools import islice

import torch
from training.captions import caption, loose_caption, prompts, vocabulary
from training.checker import judge, read
from training.draw import draw, pack
from training.world import BACKGROUNDS, COLOURS, MOTIONS, SEEN, SHAPES, UNSEEN, clips, held_out

from training import words


def test_held_out_combinations_are_never_drawn_for_training():
    made = list(islice(clips(3, SEEN), 3000))
    assert not any(held_out(t.colour, t.shape, t.motion) for clip in made for t in clip.things)
    assert any(len(clip.things) == 2 for clip in made)


def test_every_prompt_of_the_bar_shows_only_held_out_combinations():
    asked = prompts(200, 77)
    assert all(held_out(t.colour, t.shape, t.motion) for clip, _ in asked for t in clip.things)
    assert asked == prompts(200, 77)


def test_training_still_sees_every_colour_shape_and_motion():
    for position, names in enumerate((COLOURS, SHAPES, MOTIONS)):
        assert {combo[position] for combo in SEEN} == set(names)
        assert {combo[position] for combo in UNSEEN} == set(names)


def test_every_word_of_a_caption_is_known_and_fits():
    known, rng = set(vocabulary()) | {words.UNK}, random.Random(1)
    said = [loose_caption(rng, clip) for clip in islice(clips(4, SEEN), 2000)]
    assert not {word for text in said for word in text.split()} - known
    assert max(len(text.split()) for text in said) < words.LONGEST


def test_fast_encoding_is_what_the_tokenizer_says():
    said = [text for _, text in prompts(50, 9)] + ["", "a red zebra !"]
    slow = words.tokenizer()(said, padding="max_length", max_length=words.LONGEST, return_tensors="pt")
    assert torch.equal(slow.input_ids[:-1], words.encode(said[:-1]).long())
    assert words.word_ids()[words.UNK] in slow.input_ids[-1]


def test_checker_reads_drawn_clips_right():
    asked = list(islice(clips(11, SEEN + UNSEEN), 24))
    frames, _ = draw(pack(asked))
    frames = (frames + 0.02 * torch.randn(frames.shape, generator=torch.Generator().manual_seed(0))).clamp(
        0, 1
    )
    for clip, shown in zip(asked, frames, strict=True):
        verdict = judge(clip, read(shown[::2], len(clip.things)))
        assert verdict.colour and verdict.shape and verdict.motion and verdict.background, clip


def test_checker_does_not_pass_the_wrong_clip():
    one, other = islice(clips(12, UNSEEN, two_share=0.0), 2)
    frames, _ = draw(pack([one]))
    verdict = judge(other, read(frames[0, ::2]))
    assert not (verdict.colour and verdict.shape and verdict.motion and verdict.background)


def test_captions_name_the_background():
    rng = random.Random(5)
    clip = next(clips(6, SEEN, two_share=0.0))
    said = {caption(rng, clip) for _ in range(30)}
    assert len(said) > 20 and clip.backdrop.first in BACKGROUNDS
