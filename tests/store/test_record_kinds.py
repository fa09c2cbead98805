"""What a version makes of records that another version wrote."""

import json
from dataclasses import dataclass
from enum import StrEnum

import pytest

from turnout.store.record_kinds import FORMAT, LEFT_OUT, NewerRecord, RecordKind


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Thing:
    size: int
    colour: Colour = Colour.RED
    colours: tuple[Colour, ...] = ()
    parts: tuple["Thing", ...] = ()


STRICT = RecordKind[Thing]("thing", Thing)
KIND = RecordKind[Thing]("thing", Thing, unknown={"colour": Colour.BLUE, "colours": LEFT_OUT})


def doc(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_record_tells_its_format_and_a_map_has_no_place_for_it() -> None:
    assert json.loads(KIND.dump(Thing(1)))["format"] == FORMAT
    assert KIND.load(KIND.dump(Thing(1, Colour.BLUE))) == Thing(1, Colour.BLUE)
    assert json.loads(RecordKind[dict[str, int]]("counts", dict[str, int]).dump({"a": 1})) == {"a": 1}


def test_fields_of_another_version_are_ignored_and_missing_ones_have_defaults() -> None:
    assert KIND.load(doc(size=1, new=[1, 2], format=FORMAT + 1)) == Thing(1)


def test_a_value_without_a_name_becomes_what_its_field_says() -> None:
    assert KIND.load(doc(size=1, colour="green")) == Thing(1, Colour.BLUE)
    inside = doc(size=1, parts=[{"size": 2, "colour": "green"}, {"size": 3, "colour": "red"}])
    assert KIND.load(inside) == Thing(1, parts=(Thing(2, Colour.BLUE), Thing(3)))


def test_members_without_a_name_are_left_out_and_the_others_keep_their_order() -> None:
    found = KIND.load(doc(size=1, colours=["green", "blue", "pink", "red", "grey"]))
    assert found.colours == (Colour.BLUE, Colour.RED)


def test_where_nothing_is_said_of_a_name_the_record_is_a_newer_ones() -> None:
    with pytest.raises(NewerRecord, match=r"^colour has a value that this version does not know$"):
        STRICT.load(doc(size=1, colour="green"))
    with pytest.raises(NewerRecord, match=r"^parts\.0\.colour "):
        STRICT.load(doc(size=1, parts=[{"size": 1, "colour": "green"}]))


def test_a_list_of_names_is_a_newer_ones_too() -> None:
    with pytest.raises(NewerRecord, match=r"^0 has a value that this version does not know$"):
        RecordKind[list[Colour]]("colours", list[Colour], unknown={"colour": Colour.BLUE}).load(b'["green"]')


def test_what_cannot_be_read_is_a_newer_ones_only_if_its_format_says_so() -> None:
    with pytest.raises(NewerRecord, match=f"^format {FORMAT + 1} is newer than {FORMAT}$"):
        KIND.load(doc(size="large", format=FORMAT + 1))
    for damaged in (
        doc(size="large"),
        doc(size="large", format=FORMAT),
        doc(size="large", format="9"),
        doc(size="large", colour="green"),
        doc(size=1, colour=7),
        b"[1]",
        b"{",
    ):
        with pytest.raises(ValueError) as caught:
            KIND.load(damaged)
        assert not isinstance(caught.value, NewerRecord), damaged
    with pytest.raises(ValueError) as caught:
        STRICT.load(doc(size="large", colour="green"))
    assert not isinstance(caught.value, NewerRecord), "a name is not all that is wrong"
