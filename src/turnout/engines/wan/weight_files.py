"""What lies where in a folder of safetensors files, read from their headers alone. No torch here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

# The limit of the format's own library.
_HEADER_LIMIT = 100_000_000


@dataclass(frozen=True, slots=True)
class StoredTensor:
    path: Path
    offset: int
    """From the start of the file."""
    length: int
    dtype: str
    """As the format names it: F32, BF16, F16, …"""
    shape: tuple[int, ...]


def stored_tensors(folder: Path, only: Path | None = None) -> Mapping[str, StoredTensor]:
    """Every tensor of a model's folder: of `only`, of the files that its index names, or of the one file there."""
    if only is not None:
        return _tensors(only)
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if len(indexes) == 1:
        index = cast("dict[str, dict[str, str]]", json.loads(indexes[0].read_text()))
        names = sorted(set(index["weight_map"].values()))
        if any(Path(name).name != name for name in names):
            raise ValueError(f"{indexes[0]} names files outside its folder")
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
        if len(files) != 1:
            raise ValueError(
                f"{folder} holds {len(files)} safetensors files and {len(indexes)} indexes of them"
            )
    return {name: tensor for file in files for name, tensor in _tensors(file).items()}


def _tensors(path: Path) -> dict[str, StoredTensor]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(_HEADER_LIMIT, size - 8):
            raise ValueError(f"{path} is no safetensors file")
        header = cast("dict[str, dict[str, Any]]", json.loads(file.read(length)))
    start = 8 + length
    found: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (int(number) for number in entry["data_offsets"])
        if not 0 <= begin <= end <= size - start:
            raise ValueError(f"{path} is cut short: {name} ends at byte {start + end} of {size}")
        shape = tuple(int(number) for number in entry["shape"])
        found[name] = StoredTensor(path, start + begin, end - begin, str(entry["dtype"]), shape)
    return found
