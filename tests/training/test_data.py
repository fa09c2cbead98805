"""The drawn world: what is held out stays out, words match the tokenizer, the checker reads what was drawn."""

import random
from itertools import islice

import torch
from training.captions import CHINESE, ENGLISH, caption, loose_caption, prompts
from training.checker import judge, read, verdict_on
from training.draw import SLOTS, draw, pack
from training.first_bar import first_bar
from training.meaning import FIELDS, NOTHING, labels
from training.pictures import bank, film, shots
from training.scenes import SCENES, scenes
from training.world import COLOURS, MOTIONS, SEEN, SHAPES, UNSEEN, clips, held_out

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


def test_the_first_bar_stands_as_it_was_set():
    asked = first_bar()
    assert len(asked) == 200
    assert all(held_out(t.colour, t.shape, t.motion) for clip, _ in asked for t in clip.things)
    assert asked[0][1].startswith("a small purple ring glides to the right")


def test_captions_fit_and_hold_no_unknown_word_of_their_own():
    rng, clean, rough = random.Random(1), [], []
    for clip in islice(clips(4, SEEN), 500):
        clean += [caption(rng, clip, ENGLISH), caption(rng, clip, CHINESE)]
        rough.append(loose_caption(rng, clip))
    assert not (words.encode(clean) == words.word_ids()[words.UNK]).any()
    cut = words.encode(rough)[:, -1] != 0
    assert cut.float().mean() < 0.01


def test_a_spelled_word_keeps_its_letters_and_a_known_beginning():
    written = {i: word for word, i in words.word_ids().items()}
    rng, seen = random.Random(2), set()
    for _ in range(200):
        pieces = [written[i] for i in words.respelled(rng, [words.word_ids()["leaping"]])]
        assert "".join(piece.removeprefix("##") for piece in pieces) == "leaping"
        seen.add(tuple(pieces))
    assert {("leaping",), ("leap", "##ing"), ("l", "##e", "##a", "##p", "##ing")} == seen


def test_spelled_captions_are_drawn_for_training_alone():
    said = [text for _, text in prompts(200, 9)]
    spelled = (words.encode(said) != words.encode(said, random.Random(1))).any(1)
    assert 0.05 < spelled.float().mean() < 0.4


def test_words_keep_their_embeddings_when_the_vocabulary_grows():
    known = words.word_ids()
    before = {word: i for i, word in enumerate(sorted(known)) if word != "leaping"}
    rows, fresh = torch.arange(len(known) + 1.0).view(-1, 1), torch.full((len(known), 1), -1.0)
    now = words.carried_over(rows, before, fresh)
    assert now[known["leaping"]] == -1
    assert all(now[i] == before[word] for word, i in known.items() if word in before)


def test_encoding_is_what_the_exported_tokenizer_says():
    said = [text for _, text in prompts(50, 9)] + ["", "a reddish zebra !", "红色的圆形，向左。"]
    slow = words.tokenizer()(
        said, padding="max_length", max_length=words.LONGEST, truncation=True, return_tensors="pt"
    )
    assert torch.equal(slow.input_ids, words.encode(said).long())


def test_a_word_that_was_not_taught_is_read_by_its_pieces():
    pieces = words.tokenizer().tokenize("A reddish ball, 绯红的球")
    assert pieces[:4] == ["a", "red", "##d", "##ish"]
    assert pieces[-4:] == ["红", "的", "球"][-4:] or pieces[-3:] == ["红", "的", "球"]


def test_every_clip_has_a_class_for_what_it_shows():
    made = [*islice(clips(2, SEEN), 50), *islice(scenes(2), 30), *(clip for clip, _ in islice(shots(2), 20))]
    for clip in made:
        for (_, values), label in zip(FIELDS, labels(clip), strict=True):
            assert label == NOTHING or 0 <= label < len(values)


def test_scenes_fit_their_slots_and_a_camera_keeps_the_first_frame_of_a_picture():
    some = list(islice(scenes(1), 60))
    assert {clip.scene for clip in some} == set(SCENES)
    assert max(len(clip.parts) for clip in some) <= SLOTS
    pictures = bank(2, torch.device("cpu"), 1)
    moved = film(pictures, torch.tensor([[40.0, 0, 1, 0, 0], [0, 0, 1, 0, 0]]), 17)
    assert torch.allclose(moved[:, 0], pictures[:, :, 32:160, 32:160].float(), atol=1e-3)
    assert (moved[0, 16] - moved[0, 0]).abs().mean() > 0.02
    assert torch.equal(moved[1, 16], moved[1, 0])


def test_checker_reads_drawn_clips_right():
    asked = list(islice(clips(11, SEEN + UNSEEN), 12))
    frames, _ = draw(pack(asked))
    frames = (frames + 0.02 * torch.randn(frames.shape, generator=torch.Generator().manual_seed(0))).clamp(
        0, 1
    )
    for clip, shown in zip(asked, frames, strict=True):
        assert verdict_on(clip, shown).all, clip


def test_checker_does_not_pass_the_wrong_clip():
    one, other = islice(clips(12, UNSEEN, two_share=0.0), 2)
    frames, _ = draw(pack([one]))
    verdict = judge(other, read(frames[0, ::2]))
    assert not (verdict.colour and verdict.shape and verdict.motion and verdict.background)
