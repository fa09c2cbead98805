"""Reads one text from the metadata of a GGUF file, the format of llama.cpp's weights."""

import mmap
import struct
from pathlib import Path

_STRING, _ARRAY = 8, 9
_SIZES = {
    0: 1,
    1: 1,
    2: 2,
    3: 2,
    4: 4,
    5: 4,
    6: 4,
    7: 1,
    10: 8,
    11: 8,
    12: 8,
}  # bytes of a value, by its type


def read_text(path: Path, key: str) -> str | None:
    """The text that `key` has; None when there is none, or the file is not what it should be."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _find(data, key.encode())
    except (OSError, ValueError, KeyError, struct.error):
        return None


def _find(data: mmap.mmap, key: bytes) -> str | None:
    magic, _, _, count = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF":
        return None
    at = 24
    for _ in range(count):
        name, at = _text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        if name == key:
            return _text(data, at + 4)[0].decode() if kind == _STRING else None
        at = _after(data, at + 4, kind)
    return None


def _text(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise ValueError("it ends in the middle of a text")
    return data[at + 8 : end], end


def _after(data: mmap.mmap, at: int, kind: int) -> int:
    """Where the value that begins at `at` ends."""
    if kind == _STRING:
        return _text(data, at)[1]
    if kind != _ARRAY:
        return at + _SIZES[kind]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in _SIZES:
        return at + _SIZES[inner] * count
    for _ in range(count):
        at = _after(data, at, inner)
    return at
