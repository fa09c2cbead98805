"""The bar of everyday wordings: its prompts mean what they say, and training can say none of them."""

import re

import pytest
from training.captions import ENGLISH, can_say, caption, loose_caption, vocabulary
from training.chinese import CHINESE
from training.everyday import HELD_OUT, WATCHED, everyday, meant
from training.grammar import Grammar
from training.world import FADED, PLAIN, SEEN, clips, stands_out

LANGUAGES = ("en", "zh")
GRAMMARS = {"en": ENGLISH, "zh": CHINESE}


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_150_different_prompts_a_language(language):
    said = [text for text, _ in everyday(language)]
    assert len(said) == len(set(said)) == 150
    assert not set(said) & {text for text, _ in WATCHED}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_prompt_of_the_bar_can_come_out_of_the_training_grammar(language):
    assert [text for text, _ in everyday(language) if can_say(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_held_out_words_stand_in_the_bar_and_in_no_template(language):
    literals = "|".join(GRAMMARS[language].literals()).lower()
    prompts = "|".join(text for text, _ in everyday(language)).lower()
    edge = r"\b" if language == "en" else ""
    for word in HELD_OUT[language]:
        assert not re.search(f"{edge}{re.escape(word)}{edge}", literals), word
        assert re.search(f"{edge}{re.escape(word)}{edge}", prompts), word


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_asked_can_be_drawn_and_read(language):
    for text, meaning in everyday(language):
        clip = meant(meaning)
        assert clip.backdrop in PLAIN or clip.backdrop in FADED, text
        assert all(stands_out(thing.colour, clip.backdrop) for thing in clip.things), text


def test_the_parser_knows_what_the_grammar_says():
    import random

    rng = random.Random(3)
    for clip, _ in zip(clips(8, SEEN), range(40), strict=False):
        for grammar in GRAMMARS.values():
            assert can_say(caption(rng, clip, grammar))


def test_the_parser_is_blind_to_articles_and_punctuation_but_not_to_words():
    grammar = Grammar(
        {"S": ("a {N} goes {way}", "{N}")},
        {"N": {"x": ("red ball",)}, "way": {"l": ("left",), "r": ("right",)}},
    )
    assert grammar.can_say("The red ball, goes right!", "S")
    assert not grammar.can_say("the red ball goes", "S")
    assert not grammar.can_say("the blue ball goes left", "S")


def test_both_languages_are_on_the_same_footing():
    import random

    rng = random.Random(1)
    said = [loose_caption(rng, clip) for clip, _ in zip(clips(5, SEEN), range(400), strict=False)]
    chinese = sum(bool(re.search(r"[一-鿿]", text)) for text in said)
    assert 150 < chinese < 250
    assert {"red", "红", "圆"} <= set(vocabulary())
