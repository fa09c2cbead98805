# pyright: reportUnknownMemberType=false
"""Fills a module's parameters from safetensors files, by several threads at once.

A thread reads a run of bytes into a pinned buffer and copies it to the GPU while it reads the next run into another
one. Each parameter is read straight to where it stays: fused ones from several tensors, and with FSDP only the rows that
this rank holds. The ready-made loaders do neither: fastsafetensors brings whole files to the device and hands out views
of them; runai-model-streamer hands out whole tensors in host memory (6 GB/s to an H200 where this reader makes 30).
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from turnout.engines.base import Progress
from turnout.engines.wan.weight_files import StoredTensor

# From the page cache to an H200 with 16 cores: 12 threads make 30 GB/s. With one for every core they get in each other's
# way (17 GB/s), as they do with smaller runs: taking turns at the interpreter costs more than the bytes.
_MOST_THREADS = 12
_RUN_BYTES = 32 << 20
# A gap up to this size is read along rather than left out, since another read costs more.
_GAP_BYTES = 64 << 10
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file, and the flat part of a parameter that they become."""

    path: Path
    offset: int
    length: int
    dtype: torch.dtype
    into: torch.Tensor

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Run:
    """Pieces that lie side by side in a file and are read at once."""

    pieces: tuple[Piece, ...]

    @property
    def path(self) -> Path:
        return self.pieces[0].path

    @property
    def offset(self) -> int:
        return self.pieces[0].offset

    @property
    def length(self) -> int:
        return self.pieces[-1].end - self.offset

    def copy_from(self, buffer: torch.Tensor) -> None:
        for piece in self.pieces:
            begin = piece.offset - self.offset
            piece.into.copy_(buffer[begin : begin + piece.length].view(piece.dtype), non_blocking=True)


class WeightReader:
    """Made once for all parts of a model, so that the pinned buffers are made once."""

    def __init__(self, device: torch.device, progress: Progress | None = None, total_bytes: int = 0) -> None:
        self._device = device
        self._progress = progress
        self._total_bytes = total_bytes
        self._read_bytes = 0  # written under the lock of the work in hand
        self._threads = min(_MOST_THREADS, os.cpu_count() or 1)
        on_gpu = device.type == "cuda"
        self._buffers = torch.empty((self._threads, 2, _RUN_BYTES), dtype=torch.uint8, pin_memory=on_gpu)

    def fill(
        self, module: nn.Module, made_of: Mapping[str, Sequence[str]], stored: Mapping[str, StoredTensor]
    ) -> None:
        """Read all parameters of `module`; `made_of` names the tensors that lie in each, one below the other."""
        runs = _runs(_pieces(dict(module.named_parameters()), made_of, stored))
        work = _Work(runs, self._advanced)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="weights") as pool:
            jobs = [pool.submit(self._read, work, place) for place in range(self._threads)]
            try:
                for job in jobs:
                    job.result()
            finally:
                work.stop()
                work.close()

    def _advanced(self, count: int) -> None:
        self._read_bytes += count
        if self._progress is not None:
            # Gaps are read along, so it may come out above what the tensors have.
            self._progress(min(self._read_bytes, self._total_bytes), self._total_bytes)

    def _read(self, work: "_Work", place: int) -> None:
        buffers = self._buffers[place]
        if self._device.type != "cuda":
            for run in work.runs():
                _receive(work.descriptor(run.path), run, buffers[0])
                run.copy_from(buffers[0])
            return
        stream = torch.cuda.Stream(self._device)
        # Blocking: a thread that waits in a loop takes a core from those that read.
        copied = [torch.cuda.Event(blocking=True), torch.cuda.Event(blocking=True)]
        with torch.cuda.stream(stream):
            for number, run in enumerate(work.runs()):
                buffer, done = buffers[number % 2], copied[number % 2]
                done.synchronize()  # the copies that last read from this buffer
                _receive(work.descriptor(run.path), run, buffer)
                run.copy_from(buffer)
                done.record(stream)
        stream.synchronize()


class _Work:
    """The runs that are yet to be read, and the open files; shared by the threads."""

    def __init__(self, runs: Sequence[Run], advanced: Callable[[int], None]) -> None:
        self._lock = threading.Lock()
        self._left: Iterator[Run] = iter(runs)
        self._advanced = advanced
        self._descriptors = {path: os.open(path, os.O_RDONLY) for path in {run.path for run in runs}}

    def runs(self) -> Iterator[Run]:
        while (run := self._next()) is not None:
            yield run

    def _next(self) -> Run | None:
        with self._lock:
            run = next(self._left, None)
            if run is not None:
                self._advanced(run.length)
            return run

    def descriptor(self, path: Path) -> int:
        return self._descriptors[path]

    def stop(self) -> None:
        """Give out no more runs: one thread has failed."""
        with self._lock:
            self._left = iter(())

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def _receive(descriptor: int, run: Run, buffer: torch.Tensor) -> None:
    view = memoryview(cast("Any", buffer.numpy()))
    got = 0
    while got < run.length:
        count = os.preadv(descriptor, [view[got : run.length]], run.offset + got)
        if count == 0:
            raise OSError(f"{run.path} became shorter while it was read")
        got += count


def _runs(pieces: Iterable[Piece]) -> list[Run]:
    """All pieces, side by side where they fit into one buffer."""
    runs: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda each: (each.path, each.offset)):
        if runs and _belongs(piece, runs[-1]):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [Run(tuple(run)) for run in runs]


def _belongs(piece: Piece, run: Sequence[Piece]) -> bool:
    begin = piece.offset - run[0].offset
    return (
        piece.path == run[0].path
        and 0 <= piece.offset - run[-1].end <= _GAP_BYTES
        and begin + piece.length <= _RUN_BYTES
        and begin % piece.dtype.itemsize == 0  # a buffer cannot be viewed from the middle of a number
    )


def _pieces(
    parameters: Mapping[str, nn.Parameter],
    made_of: Mapping[str, Sequence[str]],
    stored: Mapping[str, StoredTensor],
) -> Iterator[Piece]:
    for name, parameter in parameters.items():
        local, first_row = held_rows(parameter)
        row_numbers = parameter.shape[1:].numel()
        place = 0
        for source in made_of[name]:
            if source not in stored:
                raise ValueError(f"the files hold no {source}")
            tensor = stored[source]
            dtype = _DTYPES.get(tensor.dtype)
            numbers = torch.Size(tensor.shape).numel()
            if dtype is None or tensor.length != numbers * dtype.itemsize or numbers % row_numbers:
                raise ValueError(
                    f"{source} is {tensor.dtype} {list(tensor.shape)}, which does not fit {name}"
                )
            # In numbers, of the whole parameter: where this tensor lies, and where what is held here lies.
            begin = max(place, first_row * row_numbers)
            end = min(place + numbers, first_row * row_numbers + local.numel())
            step = _RUN_BYTES // dtype.itemsize
            for at in range(begin, end, step):
                count = min(step, end - at)
                yield Piece(
                    tensor.path,
                    tensor.offset + (at - place) * dtype.itemsize,
                    count * dtype.itemsize,
                    dtype,
                    local[at - first_row * row_numbers :][:count],
                )
            place += numbers
        if place != parameter.numel():
            raise ValueError(f"{name} has {parameter.numel()} numbers, but {place} lie in the files for it")


def held_rows(parameter: nn.Parameter) -> tuple[torch.Tensor, int]:
    """What lies on this rank as a flat tensor, and its first row in the whole parameter."""
    tensor: Any = parameter.data
    if not hasattr(tensor, "device_mesh"):  # no DTensor, whose module takes half a second of CPU to import
        return tensor.view(-1), 0
    # FSDP2 gives every rank the same number of rows; the last ones get what is left, or none.
    chunk = -(-tensor.shape[0] // tensor.device_mesh.size())
    local = tensor.to_local()
    return local.view(-1), chunk * tensor.device_mesh.get_local_rank()
