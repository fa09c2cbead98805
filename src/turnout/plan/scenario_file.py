"""Reads a scenario from a YAML file. Each mistake is one line that says where in the file it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from turnout.errors import InvalidRequest, Misconfigured
from turnout.fleet.declared_models import read_model
from turnout.fleet.placement_rules import could_ever_fit
from turnout.plan.scenario import (
    STRICT,
    Faults,
    MachineKind,
    PlannedModel,
    Scenario,
    ServiceSettings,
    Targets,
    Timing,
    TrafficPart,
)
from turnout.plan.simulated_machine import empty_machine
from turnout.validation import UNKNOWN, rule

MAX_BYTES = 4 * 2**20
_MAX_COPIES = 2_000
_MAX_SHOWN = 20
_MAX_VALUES = 200_000  # an alias of aliases of aliases stands for more than any machine holds
_OURS = ("timing", "copies")  # said of a model in scenarios only

_Place = tuple[str | int, ...]


class ScenarioMistakes(Misconfigured):
    """All that is wrong with a scenario, one line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines[0])
        self.lines = tuple(lines[:_MAX_SHOWN])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    models: dict[str, dict[str, Any]] = field(metadata={"min_length": 1, "max_length": 2_000})
    traffic: tuple[TrafficPart, ...] = field(metadata={"min_length": 1, "max_length": 10_000})
    machines: dict[str, MachineKind] = field(metadata={"min_length": 1, "max_length": 100})
    name: str = field(default="", metadata={"max_length": 200})
    days: float = field(default=7.0, metadata={"gt": 0, "le": 3_660})
    seed: int = 1
    currency: str = field(default="$", metadata={"max_length": 10})
    targets: Targets = field(default_factory=Targets)
    faults: Faults = field(default_factory=Faults)
    service: ServiceSettings = field(default_factory=ServiceSettings)


_CONTENT = TypeAdapter(_Content)
_COMPOSE = cast("Callable[[str, object], object]", yaml.compose)  # pyright: ignore[reportUnknownMemberType]
_TIMING = TypeAdapter(Timing)


def read_scenario(path: Path) -> Scenario:
    """Raises ScenarioMistakes, or Misconfigured when the file cannot be read at all."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise Misconfigured(f"{path}: it is over {MAX_BYTES} bytes")
        return parse_scenario(text.decode(), str(path))
    except (OSError, UnicodeDecodeError) as err:
        raise Misconfigured(f"{path}: {err}") from err


def parse_scenario(text: str, file: str) -> Scenario:
    return _Reader(text, file).scenario()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._mistakes: list[tuple[int, str]] = []
        self._lines: dict[_Place, int] = {(): 1}
        try:
            self._mark(cast("yaml.Node | None", _COMPOSE(text, yaml.SafeLoader)), ())
            self._content: object = yaml.safe_load(text)
        except yaml.MarkedYAMLError as err:
            line = err.problem_mark.line + 1 if err.problem_mark else 1
            raise ScenarioMistakes([f"{file}:{line}: it is not YAML: {err.problem}"]) from err
        except (yaml.YAMLError, RecursionError, ValueError) as err:
            raise ScenarioMistakes([f"{file}:1: it is not YAML: {err}"]) from err

    def scenario(self) -> Scenario:
        content = self._checked(_CONTENT, self._content, ())
        models: dict[str, PlannedModel] = {}
        copies: dict[str, tuple[str, ...]] = {}
        for name, declared in self._declared().items():
            for model in self._models(name, declared):
                models[model.name] = model
                copies[name] = (*copies.get(name, ()), model.name)
        if content is not None:
            self._check_traffic(content, models, copies)
            self._check_fit(content, models, copies)
        if self._mistakes or content is None:
            raise ScenarioMistakes([f"{self._file}:{line}: {text}" for line, text in sorted(self._mistakes)])
        return Scenario(
            models,
            content.traffic,
            content.machines,
            copies,
            {n: {k: v for k, v in d.items() if k not in _OURS} for n, d in self._declared().items()},
            content.name,
            content.days,
            content.seed,
            content.targets,
            content.faults,
            content.service,
            content.currency,
        )

    def _declared(self) -> dict[str, Mapping[str, Any]]:
        """The models, also when the rest of the file is wrong."""
        models = _mapping(self._content).get("models")
        return {str(name): cast("Mapping[str, Any]", _mapping(m)) for name, m in _mapping(models).items()}

    def _mark(self, node: yaml.Node | None, path: _Place) -> None:
        """Remembers on which line each value stands."""
        if node is None:
            return
        self._lines[path] = node.start_mark.line + 1
        if len(self._lines) > _MAX_VALUES:
            raise yaml.YAMLError(
                f"it has more than {_MAX_VALUES} values, aliases counted as what they stand for"
            )
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
                name = str(key.value)
                if name in seen:
                    self._mistakes.append((key.start_mark.line + 1, f"{name} is given twice."))
                seen.add(name)
                self._mark(value, (*path, name))
                self._lines[(*path, name)] = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            for n, value in enumerate(cast("list[yaml.Node]", node.value)):
                self._mark(value, (*path, n))

    def _wrong(self, path: _Place, text: str) -> None:
        known = path
        while known not in self._lines:
            known = known[:-1]
        self._mistakes.append((self._lines[known], text))

    def _checked(self, shape: TypeAdapter[Any], values: object, path: _Place) -> Any:
        try:
            return shape.validate_python(values)
        except ValidationError as err:
            problems = cast("list[dict[str, Any]]", err.errors(include_url=False))
            inside = {problem["loc"][:n] for problem in problems for n in range(len(problem["loc"]))}
            for problem in problems:
                if problem["type"] == "too_short" and problem["loc"] in inside:
                    continue  # its entries are wrong, not too few
                where: _Place = (*path, *problem["loc"])
                name = ".".join(map(str, where)) or "the scenario"
                kind = str(problem["type"])
                if kind in UNKNOWN:
                    self._wrong(where, f"{name} is not known.")
                elif kind == "missing":
                    self._wrong(where, f"{name} is required.")
                else:
                    self._wrong(where, f"{name} {rule(kind, problem)}")
            return None

    def _models(self, name: str, declared: Mapping[str, Any]) -> list[PlannedModel]:
        path: _Place = ("models", name)
        kept = {k: v for k, v in declared.items() if k not in _OURS}
        timing = self._checked(_TIMING, declared.get("timing", {}), (*path, "timing"))
        count = declared.get("copies", 1)
        if not isinstance(count, int) or not 1 <= count <= _MAX_COPIES:
            self._wrong((*path, "copies"), f"models.{name}.copies must be from 1 to {_MAX_COPIES}.")
            count = 1
        try:
            model = read_model({"engine": "wan", "weights": name, **kept, "alias": name})
        except InvalidRequest as err:
            where = (*path, *(err.param or "").split(".")) if err.param else path
            self._wrong(where, f"models.{name}: {err.message}")
            return []
        if timing is None:
            return []
        if timing.seconds is None and not timing.sizes and timing.tokens_per_s is None:
            self._wrong(
                (*path, "timing"),
                f"models.{name}.timing needs seconds, sizes or tokens_per_s: how long a request takes.",
            )
        if count == 1:
            return [PlannedModel(model, timing)]
        return [PlannedModel(replace(model, name=f"{name}-{n}"), timing) for n in range(1, count + 1)]

    def _check_traffic(
        self, content: _Content, models: Mapping[str, PlannedModel], copies: Mapping[str, Sequence[str]]
    ) -> None:
        for n, part in enumerate(content.traffic):
            path: _Place = ("traffic", n)
            if part.trace is None and not (part.a_day or part.an_hour or part.bursts):
                self._wrong(path, f"traffic.{n} needs a_day, an_hour, bursts or a trace.")
            if part.trace is not None and not part.model:
                continue
            if part.model not in content.models:
                self._wrong((*path, "model"), f"traffic.{n}.model: there is no model {part.model!r}.")
                continue
            for name in copies.get(part.model, ())[:1]:
                self._check_sizes(path, part, models[name].timing)
        for n, kill in enumerate(content.faults.kills):
            if kill.model not in content.models:
                where = ("faults", "kills", n, "model")
                self._wrong(where, f"faults.kills.{n}.model: there is no model {kill.model!r}.")

    def _check_sizes(self, path: _Place, part: TrafficPart, timing: Timing) -> None:
        where = ".".join(map(str, path))
        for size in part.sizes:
            if size not in timing.sizes:
                self._wrong((*path, "sizes", size), f"{where}.sizes: {part.model} has no size {size!r}.")
        for name, weights in (("sizes", part.sizes.values()), ("tenants", part.tenants.values())):
            if weights and not sum(weights):
                self._wrong((*path, name), f"{where}.{name} must not all be 0.")
        for name, shape in (("by_hour", part.by_hour), ("by_weekday", part.by_weekday)):
            if shape is not None and not sum(shape):
                self._wrong((*path, name), f"{where}.{name} must not all be 0.")
        if part.trace is not None:
            return
        if part.tokens and timing.tokens_per_s is None:
            self._wrong((*path, "tokens"), f"{where}.tokens: {part.model} has no tokens_per_s.")
        if not part.tokens and not part.sizes and timing.seconds is None:
            missing = "tokens" if timing.tokens_per_s is not None else "sizes"
            self._wrong(path, f"{where} needs {missing}: {part.model} says no other time of a request.")

    def _check_fit(
        self, content: _Content, models: Mapping[str, PlannedModel], copies: Mapping[str, Sequence[str]]
    ) -> None:
        machines = [empty_machine(kind) for kind in content.machines.values()]
        for name, own in copies.items():
            if not any(could_ever_fit(models[own[0]].spec, machine) for machine in machines):
                needs = models[own[0]].spec.needs
                self._wrong(
                    ("models", name),
                    f"models.{name} fits on no machine: it needs {needs.gpus} GPUs with"
                    f" {needs.gpu_memory_bytes / 1e9:g} GB each, and {needs.memory_bytes / 1e9:g} GB of memory.",
                )
        for name, kind in content.machines.items():
            if kind.min > kind.max:
                self._wrong(("machines", name, "min"), f"machines.{name}.min is above its max.")


def _mapping(value: object) -> Mapping[object, object]:
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else {}
