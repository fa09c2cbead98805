# pyright: reportUnknownMemberType=false
"""Fills a module's parameters from safetensors files, by many threads at once.

A thread reads a piece into a pinned buffer and copies it to the GPU while it reads the next piece into another one.
Each parameter is read straight to where it stays: fused ones from several tensors, and with FSDP only the rows that
this rank holds. The ready-made loaders do neither: fastsafetensors brings whole files to the device and hands out views
of them, runai-model-streamer hands out whole tensors in host memory.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from turnout.engines.wan.weight_files import StoredTensor

# From the page cache to an H200: 19, 27, 35 and 38 GB/s with 4, 8, 12 and 16 threads.
_MOST_THREADS = 16
_PIECE_BYTES = 16 << 20
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

Progress = Callable[[int, int], None]
"""Bytes read so far, and in all. Called from the reading threads."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file, and the flat part of a parameter that they become."""

    path: Path
    offset: int
    length: int
    dtype: torch.dtype
    into: torch.Tensor


class WeightReader:
    """Made once for all parts of a model, so that the pinned buffers are made once."""

    def __init__(self, device: torch.device, progress: Progress | None = None) -> None:
        self._device = device
        self._progress = progress
        self._threads = min(_MOST_THREADS, os.cpu_count() or 1)
        on_gpu = device.type == "cuda"
        self._buffers = torch.empty((self._threads, 2, _PIECE_BYTES), dtype=torch.uint8, pin_memory=on_gpu)

    def fill(
        self, module: nn.Module, made_of: Mapping[str, Sequence[str]], stored: Mapping[str, StoredTensor]
    ) -> None:
        """Read all parameters of `module`; `made_of` names the tensors that lie in each, one below the other."""
        pieces = list(_pieces(dict(module.named_parameters()), made_of, stored))
        work = _Work(pieces, self._progress)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="weights") as pool:
            jobs = [pool.submit(self._read, work, place) for place in range(self._threads)]
            try:
                for job in jobs:
                    job.result()
            finally:
                work.stop()
                work.close()

    def _read(self, work: "_Work", place: int) -> None:
        buffers = self._buffers[place]
        if self._device.type != "cuda":
            for piece in work.pieces():
                _receive(work.descriptor(piece.path), piece, buffers[0])
                piece.into.copy_(buffers[0][: piece.length].view(piece.dtype))
            return
        stream = torch.cuda.Stream(self._device)
        copied = [torch.cuda.Event(), torch.cuda.Event()]
        for turn, piece in enumerate(work.pieces()):
            buffer, done = buffers[turn % 2], copied[turn % 2]
            done.synchronize()  # the copy that last read from this buffer
            _receive(work.descriptor(piece.path), piece, buffer)
            with torch.cuda.stream(stream):
                piece.into.copy_(buffer[: piece.length].view(piece.dtype), non_blocking=True)
                done.record(stream)
        stream.synchronize()


class _Work:
    """The pieces that are yet to be read, and the open files; shared by the threads."""

    def __init__(self, pieces: Sequence[Piece], progress: Progress | None) -> None:
        self._lock = threading.Lock()
        self._left: Iterator[Piece] = iter(pieces)
        self._total = sum(piece.length for piece in pieces)
        self._read = 0
        self._progress = progress
        self._descriptors = {path: os.open(path, os.O_RDONLY) for path in {piece.path for piece in pieces}}

    def pieces(self) -> Iterator[Piece]:
        while (piece := self._next()) is not None:
            yield piece

    def _next(self) -> Piece | None:
        with self._lock:
            piece = next(self._left, None)
            if piece is not None:
                self._read += piece.length
            read = self._read
        if self._progress is not None and piece is not None:
            self._progress(read, self._total)
        return piece

    def descriptor(self, path: Path) -> int:
        return self._descriptors[path]

    def stop(self) -> None:
        """Give out no more pieces: one thread has failed."""
        with self._lock:
            self._left = iter(())

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def _receive(descriptor: int, piece: Piece, buffer: torch.Tensor) -> None:
    view = memoryview(cast("Any", buffer.numpy()))
    got = 0
    while got < piece.length:
        count = os.preadv(descriptor, [view[got : piece.length]], piece.offset + got)
        if count == 0:
            raise OSError(f"{piece.path} became shorter while it was read")
        got += count


def _pieces(
    parameters: Mapping[str, nn.Parameter],
    made_of: Mapping[str, Sequence[str]],
    stored: Mapping[str, StoredTensor],
) -> Iterator[Piece]:
    for name, parameter in parameters.items():
        local, first_row = _held_rows(parameter)
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
            step = _PIECE_BYTES // dtype.itemsize
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


def _held_rows(parameter: nn.Parameter) -> tuple[torch.Tensor, int]:
    """What lies on this rank as a flat tensor, and its first row in the whole parameter."""
    tensor: Any = parameter.data
    if not isinstance(tensor, DTensor):
        return tensor.view(-1), 0
    # FSDP2 gives every rank the same number of rows; the last ones get what is left, or none.
    chunk = -(-tensor.shape[0] // tensor.device_mesh.size())
    local = tensor.to_local()
    return local.view(-1), chunk * tensor.device_mesh.get_local_rank()
