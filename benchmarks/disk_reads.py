"""How fast weights come from a disk that has none of them in memory: by this reader, by safetensors' `load_file`, and plainly.

    python -m benchmarks.disk_reads [--folder DIR] [--gb 4] [--device cuda] [--rounds 3]

The file's pages are dropped before each read, and that they are gone is checked; the ways take turns. Needs no network.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import safetensors.torch
import torch
from torch import nn

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from turnout.engines.wan.weight_files import stored_tensors
from turnout.engines.wan.weight_reader import WeightReader

_PLAIN_BYTES = 8 << 20
_PROBES = 64


async def measure() -> Table:
    """Reading weights that are not in memory: this reader beside load_file and a plain read."""
    return _measure(Path(tempfile.gettempdir()), 2.0, "cpu", 3)


def _measure(folder: Path, gb: float, device: str, rounds: int) -> Table:
    table = Table(f"disk_reads: {gb:g} GB to {device}, GB/s", ("way", "n", "median", "worst", "of load_file"))
    pressure = Pressure()
    with tempfile.TemporaryDirectory(prefix="turnout-bench-", dir=folder) as directory:
        file = Path(directory) / "model.safetensors"
        say(f"writing {gb:g} GB to {folder}")
        layers = _write(file, gb)
        ways: dict[str, Callable[[], None]] = {
            "plain reads of 8 MiB, one after the other": lambda: _plain(file),
            "load_file, then to the device": lambda: _load_file(file, device),
            "this reader": lambda: _reader(file, layers, device),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        size = file.stat().st_size / 1e9
        cached = 0.0
        for number in range(rounds):
            for name, read in ways.items():
                cached = max(cached, _drop(file))
                began = time.monotonic()
                read()
                rates[name].append(size / (time.monotonic() - began))
                say(f"round {number + 1}: {name}: {rates[name][-1]:.2f} GB/s")
    limit = median(rates["load_file, then to the device"])
    for name, seen in rates.items():
        table.rows.append((name, len(seen), median(seen), min(seen), median(seen) / limit))
    table.notes = [
        f"At most {100 * cached:.0f} % of the file was in memory before a read.",
        pressure.note(),
    ]
    return table


def _write(file: Path, gb: float) -> int:
    layers = max(1, round(gb * 1e9 / (2 * 5120 * 5120)))
    tensors = {f"layers.{n}.weight": torch.empty(5120, 5120, dtype=torch.bfloat16) for n in range(layers)}
    for tensor in tensors.values():
        tensor.view(torch.int16).random_()
    safetensors.torch.save_file(tensors, file)
    return layers


def _drop(file: Path) -> float:
    """Drops the file's pages; the share of probes that still found one."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size, found = os.fstat(descriptor).st_size, 0
        for probe in range(_PROBES):
            try:
                os.preadv(descriptor, [bytearray(1)], probe * size // _PROBES, os.RWF_NOWAIT)
                found += 1
            except BlockingIOError:
                continue
        return found / _PROBES
    finally:
        os.close(descriptor)


def _plain(file: Path) -> None:
    buffer = bytearray(_PLAIN_BYTES)
    with file.open("rb", buffering=0) as opened:
        while opened.readinto(buffer):
            pass


def _load_file(file: Path, device: str) -> None:
    for tensor in safetensors.torch.load_file(file, device="cpu").values():
        tensor.to(device, copy=True)
    _settle(device)


def _reader(file: Path, layers: int, device: str) -> None:
    with torch.device("meta"):  # as the engine makes its modules: empty
        linears = [nn.Linear(5120, 5120, bias=False, dtype=torch.bfloat16) for _ in range(layers)]
    module = nn.ModuleDict({"layers": nn.ModuleList(linears)}).to_empty(device=device)
    names = {name: [name] for name, _ in module.named_parameters()}
    WeightReader(torch.device(device)).fill(module, names, stored_tensors(file.parent))
    _settle(device)


def _settle(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    said = parser.parse_args()
    print(_measure(said.folder, said.gb, said.device, said.rounds).text())


if __name__ == "__main__":
    main()
