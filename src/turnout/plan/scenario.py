"""A scenario: models with their timings, traffic, machines with their prices, and what should be met.

Each field's metadata is what pydantic's `Field` takes; `scenario_file` reads and checks a file with it. How a model is
kept is declared as in `turnout.yaml` (`fleet.model_declaration`); only what a plan needs besides is declared here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from turnout.fleet.model_rules import Model
from turnout.tasks.task_rules import Priority

DAY_S = 86_400.0
_WAKE_SHARE = 0.1  # of the load time, when nobody says how long it takes to wake
HOUR_S = 3_600.0


def _says(description: str, **bounds: object) -> Mapping[str, object]:
    return {"description": description, **bounds}


Seconds = Annotated[float, Field(gt=0, le=10**6)]
Weight = Annotated[float, Field(ge=0, le=10**9)]
STRICT: Mapping[str, object] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things take. A request takes `seconds` (or those of its size), or `prompt_s` and its tokens at
    `tokens_per_s`; a replica makes no more than `total_tokens_per_s` for all its requests together."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    load_s: float = field(metadata=_says("From an order to a replica that serves.", ge=0, le=86_400))
    loads: tuple[Seconds, ...] = field(
        default=(), metadata=_says("Measured loads, used in turn instead of load_s.", max_length=1_000)
    )
    wake_s: float | None = field(default=None, metadata=_says("From asleep to serving.", ge=0, le=86_400))
    stop_s: float = field(default=2.0, metadata=_says("Until its memory is free.", ge=0, le=3_600))
    pod_s: float = field(
        default=20.0,
        metadata=_says("A new pod for each job: to be scheduled, to import libraries.", ge=0, le=86_400),
    )
    seconds: float | None = field(default=None, metadata=_says("One request on one replica.", gt=0, le=10**6))
    sizes: dict[str, Seconds] = field(
        default_factory=dict[str, float], metadata=_says("Seconds of a request by its size.", max_length=100)
    )
    spread: float = field(default=0.0, metadata=_says("Standard deviation over mean.", ge=0, le=3))
    prompt_s: float = field(default=0.0, metadata=_says("Before the first token.", ge=0, le=10**4))
    tokens_per_s: float | None = field(default=None, metadata=_says("Of one request alone.", gt=0, le=10**7))
    total_tokens_per_s: float | None = field(
        default=None, metadata=_says("Of all requests of a replica.", gt=0, le=10**8)
    )
    checkpoint_s: float = field(
        default=20.0, metadata=_says("How often a video under way is kept.", gt=0, le=10**5)
    )

    @property
    def to_wake_s(self) -> float:
        return self.load_s * _WAKE_SHARE if self.wake_s is None else self.wake_s


@dataclass(frozen=True, slots=True)
class PlannedModel:
    spec: Model
    timing: Timing

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def video(self) -> bool:
        return self.spec.video is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    every_s: float = field(metadata=_says("From one burst to the next.", gt=0, le=10**7))
    requests: int = field(metadata=_says("Of each burst.", ge=1, le=10**6))
    within_s: float = field(default=60.0, metadata=_says("How long one lasts.", ge=0, le=10**6))
    first_s: float = field(default=0.0, metadata=_says("When the first one begins.", ge=0, le=10**7))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPart:
    """Requests for one model, or for its copies: at a rate with random gaps (Poisson), in bursts, or as in a trace."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    model: str = field(default="", metadata=_says("Whom the requests are for.", max_length=100))
    a_day: float | None = field(default=None, metadata=_says("Requests a day.", gt=0, le=10**9))
    an_hour: float | None = field(default=None, metadata=_says("Requests an hour.", gt=0, le=10**8))
    by_hour: tuple[Weight, ...] | None = field(
        default=None,
        metadata=_says("Weight of each of the 24 hours of a day.", min_length=24, max_length=24),
    )
    by_weekday: tuple[Weight, ...] | None = field(
        default=None, metadata=_says("Weight of each day from Monday on.", min_length=7, max_length=7)
    )
    bursts: Bursts | None = None
    trace: str | None = field(
        default=None, metadata=_says("A CSV file, beside the scenario.", max_length=1_000)
    )
    tenants: dict[str, Weight] = field(
        default_factory=dict[str, float], metadata=_says("Their shares.", max_length=10_000)
    )
    sizes: dict[str, Weight] = field(
        default_factory=dict[str, float], metadata=_says("Shares of sizes.", max_length=100)
    )
    tokens: float = field(default=0.0, metadata=_says("Of an answer, on average.", ge=0, le=10**7))
    priority: Priority = Priority.NORMAL
    popularity: float = field(
        default=0.0, metadata=_says("Of copies: 0 even, 1 as words in a text (Zipf).", ge=0, le=3)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind:
    """`min` of them are always on; up to `max` can be had. One is paid from the moment it is asked for."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    gpus: int = field(metadata=_says("GPUs of one machine.", ge=0, le=64))
    gpu_memory_bytes: int = field(default=80 * 10**9, metadata=_says("Of one GPU.", ge=0))
    memory_bytes: int = field(default=10**12, metadata=_says("Main memory.", ge=0))
    price_an_hour: float = field(default=0.0, metadata=_says("Of one machine.", ge=0, le=10**6))
    boot_s: float = field(default=180.0, metadata=_says("From asked for to usable.", ge=0, le=86_400))
    release_s: float = field(
        default=300.0, metadata=_says("An empty one is given back then.", ge=0, le=10**7)
    )
    min: int = field(default=0, metadata=_says("Always on.", ge=0, le=10_000))
    max: int = field(default=1, metadata=_says("Never more than these.", ge=1, le=10_000))
    deaths_a_day: float = field(
        default=0.0, metadata=_says("How often one is lost (spot, faults).", ge=0, le=1_000)
    )
    watts: float = field(default=0.0, metadata=_says("Of a GPU that computes.", ge=0, le=10**5))
    idle_watts: float = field(default=0.0, metadata=_says("Of a GPU that does not.", ge=0, le=10**5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    p95_wait_s: float | None = field(default=None, metadata=_says("Of all requests.", gt=0, le=10**7))
    budget_a_day: float | None = field(default=None, metadata=_says("In the prices' currency.", gt=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """At `at_s` one replica of the model is killed."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    at_s: float = field(metadata=_says("Seconds from the beginning.", ge=0))
    model: str = field(metadata=_says("Whose replica.", max_length=100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Besides the deaths of machines: a share of loads takes `slow_factor` times as long, replicas crash, or are killed."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    slow_loads: float = field(default=0.0, metadata=_says("Share of loads that are slow.", ge=0, le=1))
    slow_factor: float = field(default=3.0, metadata=_says("How much slower.", ge=1, le=1_000))
    crashes_a_day: float = field(default=0.0, metadata=_says("Of one replica.", ge=0, le=10_000))
    kills: tuple[Kill, ...] = field(default=(), metadata=_says("At given times.", max_length=10_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Settings of the service, named as in `turnout.yaml`; limits of tenants are off unless they are set. The last three
    are what was measured of the service itself."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    min_resident_s: float = field(default=30.0, metadata=_says("As the setting.", ge=0, le=10**7))
    lease_s: float = field(default=15.0, metadata=_says("As the setting.", gt=0, le=10**5))
    max_attempts: int = field(default=3, metadata=_says("As the setting.", ge=1, le=100))
    limit_running: int = field(default=10**9, metadata=_says("As the setting.", ge=1))
    limit_waiting: int = field(default=10**9, metadata=_says("As the setting.", ge=0))
    patience_s: float = field(default=300.0, metadata=_says("Of a chat request that waits.", gt=0, le=10**7))
    max_waiting: int = field(default=1_000, metadata=_says("Chat requests that wait for a model.", ge=0))
    look_s: float = field(default=0.05, metadata=_says("From news to a decision.", gt=0, le=60))
    claim_s: float = field(default=0.1, metadata=_says("Until an idle gang takes a task.", ge=0, le=60))
    heartbeat_s: float = field(default=2.0, metadata=_says("Of workers.", gt=0, le=60))


@dataclass(frozen=True, slots=True)
class Scenario:
    models: Mapping[str, PlannedModel]
    traffic: tuple[TrafficPart, ...]
    machines: Mapping[str, MachineKind]
    copies: Mapping[str, tuple[str, ...]]
    """The names of a model's copies, by the name that the traffic uses."""
    declared: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    """Each model as the file declares it, without its timing."""
    name: str = ""
    days: float = 7.0
    seed: int = 1
    targets: Targets = field(default_factory=Targets)
    faults: Faults = field(default_factory=Faults)
    service: ServiceSettings = field(default_factory=ServiceSettings)
    currency: str = "$"
    untraced: tuple[TrafficPart, ...] = ()
    """The file's traffic where a trace takes its place: what rows do not say is drawn as it says."""

    @property
    def horizon_s(self) -> float:
        return self.days * DAY_S
