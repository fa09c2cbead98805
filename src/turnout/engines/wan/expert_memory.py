# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Where a model's experts lie: all on the device, or only the one at work, and the others in pinned host memory.

A clip is made by one expert after the other. A render does not change weights, so leaving the device costs nothing once the host
has a copy. Coming back is a copy block by block on a stream of its own; a block waits for its own weights alone, and
computing is slower than copying. Every rank decides for itself.
"""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from turnout.engines.wan.transformer import WanTransformer

# Of the host's memory, for everything else.
_HOST_RESERVE_BYTES = 8 << 30
_ALIGNED = 512


@dataclass(slots=True)
class _Arrival:
    """What a block waits for. It names no module: a block's hook holds it, and would otherwise hold its own block for ever."""

    event: torch.cuda.Event | None = None

    def wait(self) -> None:
        if self.event is not None:
            torch.cuda.current_stream(self.event.device).wait_event(self.event)
            self.event = None


@dataclass(slots=True)
class _Part:
    """A block, or what lies around the blocks: parameters and buffers, their copies on the host, and what to wait for."""

    module: nn.Module
    whole: bool
    """Whether the modules inside belong to it, too."""
    copies: list[torch.Tensor] | None = None
    arrival: _Arrival = field(default_factory=_Arrival)

    def tensors(self) -> Iterator[torch.Tensor]:
        inside = (
            self.module.modules()
            if self.whole
            else [
                self.module,
                *(child for child in self.module.children() if not isinstance(child, nn.ModuleList)),
            ]
        )
        for module in inside:
            yield from module.parameters(recurse=False)
            yield from module.buffers(recurse=False)


class ExpertMemory:
    def __init__(self, device: torch.device, movable: bool) -> None:
        """Without `movable` all stay on the device: with FSDP each rank has only its share."""
        self._device = device
        self._movable = movable
        self._experts: list[list[_Part]] = []
        self._bytes: list[int] = []
        self._away: set[int] = set()
        self._copied: set[int] = set()  # whose copies on the host are those of the weights
        self._keeps_all = True
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pinned: list[torch.Tensor] = []
        weakref.finalize(self, _unpin, self._pinned)

    def add(self, expert: WanTransformer) -> None:
        parts = [_Part(expert, whole=False), *(_Part(block, whole=True) for block in expert.blocks)]
        self._experts.append(parts)
        self._bytes.append(sum(tensor.nbytes for part in parts for tensor in part.tensors()))
        if self._movable:
            for part in parts[1:]:
                part.module.register_forward_pre_hook(_waiting(part.arrival))

    @property
    def away_bytes(self) -> int:
        return sum(self._bytes[place] for place in self._away)

    def choose(self, needed_bytes: int, free_bytes: int) -> None:
        """Keep all on the device if a clip fits beside them, and otherwise one. `free_bytes` is what is free now."""
        self._keeps_all = needed_bytes <= free_bytes - self.away_bytes or not self._host_has_room()
        stays = next((place for place in range(len(self._experts)) if place not in self._away), None)
        for place in range(len(self._experts)):
            if self._keeps_all:
                self._bring(place)
            elif place != stays:
                self._send(place)

    def make_room(self, needed_bytes: int, free_bytes: int | None) -> None:
        """While loading: what is loaded leaves the device if something else does not fit beside it."""
        if free_bytes is not None and needed_bytes > free_bytes and self._host_has_room():
            self._keeps_all = False
            for place in range(len(self._experts)):
                self._send(place)

    def use(self, place: int) -> None:
        """This expert is computed with next."""
        if not self._keeps_all:
            for other in range(len(self._experts)):
                if other != place:
                    self._send(other)
        self._bring(place)

    def change(self, place: int) -> None:
        """This expert's weights are changed next, by whatever stream."""
        self.use(place)
        self._copied.discard(place)
        if self._stream is not None:
            torch.cuda.synchronize(self._device)

    def _host_has_room(self) -> bool:
        uncopied = sum(
            size for parts, size in zip(self._experts, self._bytes, strict=True) if parts[0].copies is None
        )
        return self._movable and _available_bytes() > uncopied + _HOST_RESERVE_BYTES

    def _send(self, place: int) -> None:
        if place in self._away or not self._movable:
            return
        for part in self._experts[place]:
            part.arrival.wait()
            tensors = list(part.tensors())
            if part.copies is None:
                part.copies = self._host_tensors(tensors)
            if place not in self._copied:
                for copy, tensor in zip(part.copies, tensors, strict=True):
                    copy.copy_(tensor.data, non_blocking=True)
        if self._stream is not None and place not in self._copied:
            torch.cuda.current_stream(self._device).synchronize()
        for part in self._experts[place]:
            for tensor in part.tensors():
                tensor.data = tensor.data.new_empty(0)
        self._copied.add(place)
        self._away.add(place)

    def _bring(self, place: int) -> None:
        if place not in self._away:
            return
        if self._stream is not None:
            # What the other expert left is free for us when the kernels that used it have ended.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        for part in self._experts[place]:
            assert part.copies is not None
            fresh = [torch.empty_like(copy, device=self._device) for copy in part.copies]
            if self._stream is None:
                _copy(part.copies, fresh)
            else:
                with torch.cuda.stream(self._stream):
                    _copy(part.copies, fresh)
                    part.arrival.event = torch.cuda.Event()
                    part.arrival.event.record(self._stream)
            for tensor, there in zip(part.tensors(), fresh, strict=True):
                tensor.data = there
        self._away.discard(place)
        self._experts[place][0].arrival.wait()

    def _host_tensors(self, like: list[torch.Tensor]) -> list[torch.Tensor]:
        """Room for each of them, side by side in one piece of memory."""
        sizes = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in like]
        # Written once by all cores: pages that are there already are pinned faster.
        whole = torch.empty(sum(sizes), dtype=torch.uint8).zero_()
        if self._stream is not None:
            # PyTorch's own allocator would round the size up to a power of two.
            code = int(_cudart().cudaHostRegister(whole.data_ptr(), whole.nbytes, 0))
            if code != 0:
                raise RuntimeError(
                    f"{whole.nbytes} bytes of host memory could not be pinned: CUDA error {code}"
                )
            self._pinned.append(whole)
        pieces = zip(like, whole.split(sizes), strict=True)
        return [piece[: tensor.nbytes].view(tensor.dtype).view(tensor.shape) for tensor, piece in pieces]


def _waiting(arrival: _Arrival) -> Callable[..., None]:
    def wait(*_: Any) -> None:
        arrival.wait()

    return wait


def _unpin(pinned: list[torch.Tensor]) -> None:
    for tensor in pinned:
        _cudart().cudaHostUnregister(tensor.data_ptr())


def _cudart() -> Any:
    return torch.cuda.cudart()


def _copy(copies: list[torch.Tensor], into: list[torch.Tensor]) -> None:
    for copy, tensor in zip(copies, into, strict=True):
        tensor.copy_(copy, non_blocking=True)


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
