"""One text from a file of weights, and nothing but None from what is no such file."""

import struct
from pathlib import Path

import pytest

from turnout.engines.servers.gguf import read_text
from turnout.engines.servers.llamacpp import find_weights


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def file(*entries: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries)) + b"".join(entries)


NUMBER = text("n") + struct.pack("<IQ", 10, 7)
WORDS = text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
BYTES = text("bytes") + struct.pack("<IIQ", 9, 0, 3) + b"xyz"
FOUND = text("t") + struct.pack("<I", 8) + text("täxt")


def test_a_text_is_found_behind_values_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(file(NUMBER, WORDS, BYTES, FOUND))
    assert (read_text(path, "t"), read_text(path, "n"), read_text(path, "no")) == ("täxt", None, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"no such file",
        file(text("x") + struct.pack("<I", 99)),
        file(FOUND)[:-2],
        file(WORDS)[:40],
    ],
)
def test_a_broken_file_has_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(content)
    assert read_text(path, "t") is None


def test_the_template_of_the_model_that_comes_along() -> None:
    template = read_text(find_weights("builtin:smollm2"), "tokenizer.chat_template")
    assert template and "messages" in template and "tools" not in template
