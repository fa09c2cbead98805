# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Adapters (LoRA) in a resident expert, changed between tasks.

Merged, they cost no time in a step, and a change reads the touched weights from their files again: subtracting would not
give back the same bits. Kept apart, a change costs nothing and every step a little. Every rank does the same to what it holds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from turnout.engines.base import Unrenderable
from turnout.engines.wan.block_ops import LowRank
from turnout.engines.wan.lora_files import LoraLayer, read_lora
from turnout.engines.wan.transformer import Projection, Projection8, WanTransformer, weight_map
from turnout.engines.wan.weight_files import stored_tensors
from turnout.engines.wan.weight_reader import WeightReader, held_rows
from turnout.tasks.video_rules import Lora, LoraUse


@dataclass(frozen=True, slots=True)
class LoraFile:
    path: Path
    strength: float


@dataclass(frozen=True, slots=True)
class LayerRows:
    """Where a layer of diffusers' format lies: some rows of one of our projections."""

    projection: str
    begin: int
    rows: int


class AdaptedExpert:
    """One expert and the files that it was read from."""

    def __init__(
        self,
        expert: WanTransformer,
        folder: Path,
        device: torch.device,
        apart: bool,
        before_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._expert = expert
        self._before_change = before_change
        self._folder = folder
        self._device = device
        self._apart = apart
        self._made_of = weight_map(expert.shape.layers)
        self._places = dict(_places(expert, self._made_of))
        self._used: tuple[LoraFile, ...] | None = ()
        self._touched: set[str] = set()

    def use(self, files: tuple[LoraFile, ...]) -> None:
        """From now on the expert computes with these adapters, and with no others."""
        if files == self._used:
            return
        # All are read before anything changes: what does not fit leaves the expert as it is.
        layers = [(read_lora(file.path, self._places.keys()), file.strength) for file in files]
        added: dict[str, list[tuple[LayerRows, LoraLayer, float]]] = {}
        for of_file, strength in layers:
            for name, layer in of_file.items():
                place = self._places[name]
                added.setdefault(place.projection, []).append((place, layer, layer.scale * strength))
        self._before_change()
        self._used = None  # neither the old ones nor the new ones, should this fail half way
        if self._apart:
            self._put_beside(added)
        else:
            self._merge(added)
        self._used, self._touched = files, set(added)

    def _put_beside(self, added: Mapping[str, Sequence[tuple[LayerRows, LoraLayer, float]]]) -> None:
        for name in self._touched | added.keys():
            projection = self._projection(name)
            dtype = projection.bias.dtype
            projection.low_ranks = tuple(
                LowRank(
                    layer.down.to(self._device, dtype),
                    layer.up.to(self._device, dtype),
                    scale,
                    place.begin,
                    None if layer.bias is None else layer.bias.to(self._device, dtype),
                )
                for place, layer, scale in added.get(name, ())
            )

    def _merge(self, added: Mapping[str, Sequence[tuple[LayerRows, LoraLayer, float]]]) -> None:
        reader, stored = WeightReader(self._device), stored_tensors(self._folder)
        for names in self._portions(sorted(self._touched | added.keys())):
            fresh = [self._exact(name) for name in names]
            made_of = {
                f"{place}.{kind}": self._made_of[f"{name}.{kind}"]
                for place, name in enumerate(names)
                for kind in ("weight", "bias")
            }
            reader.fill(nn.ModuleList(fresh), made_of, stored)
            for name, projection in zip(names, fresh, strict=True):
                _add(projection, added.get(name, ()))
                if isinstance(self._projection(name), Projection8):
                    parent, _, last = name.rpartition(".")
                    setattr(self._expert.get_submodule(parent), last, Projection8(projection))

    def _portions(self, names: Sequence[str]) -> Iterable[Sequence[str]]:
        """All at once where they are read to where they stay; those in fp8 pass through exact ones, a block at a time."""
        staying = [name for name in names if isinstance(self._projection(name), Projection)]
        if staying:
            yield staying
        by_block: dict[str, list[str]] = {}
        for name in set(names) - set(staying):
            by_block.setdefault(name.rpartition(".")[0], []).append(name)
        yield from by_block.values()

    def _exact(self, name: str) -> Projection:
        projection = self._projection(name)
        if isinstance(projection, Projection):
            return projection
        rows, columns = projection.weight8.shape
        with torch.device(self._device):
            return Projection(columns, rows, projection.bias.dtype)

    def _projection(self, name: str) -> Projection | Projection8:
        found = self._expert.get_submodule(name)
        assert isinstance(found, Projection | Projection8)
        return found


def _places(expert: WanTransformer, made_of: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, LayerRows]]:
    for name, module in expert.named_modules():
        if isinstance(module, Projection | Projection8):
            sources = made_of[f"{name}.weight"]
            rows = module.bias.shape[0] // len(sources)
            for place, source in enumerate(sources):
                yield source.removesuffix(".weight"), LayerRows(name, place * rows, rows)


@torch.no_grad()
def _add(projection: Projection, added: Sequence[tuple[LayerRows, LoraLayer, float]]) -> None:
    """In fp32 and rounded once; with FSDP only to the rows that lie here."""
    weight, first = held_rows(projection.weight)
    bias, _ = held_rows(projection.bias)
    columns = projection.weight.shape[1]
    count = weight.numel() // columns
    if not added or not count:
        return
    rows = weight.view(count, columns)
    whole, whole_bias = rows.float(), bias.float()
    for place, layer, scale in added:
        begin, end = max(place.begin, first), min(place.begin + place.rows, first + count)
        if begin >= end:
            continue
        up = layer.up[begin - place.begin : end - place.begin].to(rows.device, torch.float32)
        # As PEFT merges: the product first, then the scale.
        whole[begin - first : end - first] += (up @ layer.down.to(rows.device, torch.float32)) * scale
        if layer.bias is not None:
            more = layer.bias[begin - place.begin : end - place.begin].to(rows.device, torch.float32)
            whole_bias[begin - first : end - first] += more * scale
    rows.copy_(whole)
    bias.copy_(whole_bias)


@dataclass(frozen=True, slots=True)
class AdaptedExperts:
    """All experts of a model, high noise first, and the adapters that it declares."""

    experts: tuple[AdaptedExpert, ...]
    declared: Mapping[str, Lora]

    def use(self, wanted: Sequence[LoraUse]) -> None:
        """Unrenderable when an adapter is not declared here, or does not fit. All ranks say the same."""
        for use in wanted:
            if use.name not in self.declared:
                raise Unrenderable(f"this gang knows no adapter {use.name}")
        for place, expert in enumerate(self.experts):
            named = [(self.declared[use.name], use.strength) for use in wanted]
            paths = [
                (lora.weights or (lora.low if place else lora.high), strength) for lora, strength in named
            ]
            expert.use(tuple(LoraFile(Path(path).expanduser(), strength) for path, strength in paths if path))
