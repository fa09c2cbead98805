"""The one configuration object, read once where a program starts, with the origin of every value.

Users write settings flat (`redis_url`, `TURNOUT_REDIS_URL`, `--redis-url`). Here each lies in the section of the room that uses
it, under the same name, and a part is handed its section or single values. Later sources win: default, `turnout.yaml`,
`TURNOUT_*` variables, flags. Besides this, only the CLI's options read the environment, where a program starts.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from turnout.chat.chat_settings import ChatSettings
from turnout.engines.servers.engine_servers import check_served
from turnout.errors import InvalidRequest, Misconfigured
from turnout.fleet.declared_models import read_model
from turnout.fleet.fleet_settings import FleetSettings
from turnout.fleet.hosts.ray.ray_settings import RaySettings
from turnout.fleet.model_declaration import DECLARED
from turnout.fleet.model_rules import Model, Runner
from turnout.fleet.version_rules import check_version
from turnout.gang.gang_settings import GangSettings
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.run.config_file import named_values, read_config_file
from turnout.store.store_settings import ObjectSettings, OutboundSettings, RedisSettings
from turnout.tasks.task_settings import TaskSettings
from turnout.telemetry.telemetry_settings import TelemetrySettings
from turnout.tenants.tenant_settings import AccessSettings, CostSettings
from turnout.worker.worker_settings import WorkerSettings

DEFAULT_MODELS: Mapping[str, Mapping[str, Any]] = {
    "wan-tiny-t2v": {
        "weights": "builtin:wan-tiny-t2v",
        "family": "wan-tiny-t2v",
        "ulysses": 2,
        "needs": {"memory_bytes": 2**30},
    },
    "wan-tiny-ti2v": {
        "weights": "builtin:wan-tiny-ti2v",
        "family": "wan-tiny-ti2v",
        "ulysses": 2,
        "needs": {"memory_bytes": 2**30},
    },
    "smollm2": {
        "engine": "llamacpp",
        "weights": "builtin:smollm2",
        "needs": {"memory_bytes": 512 * 2**20},
        "concurrency": 4,
        # By llama.cpp's own, one answer in 25 repeats itself for ever, which on a CPU takes five minutes.
        "arguments": ["--predict=512", "--repeat-penalty=1.1", "--temperature=0.2"],
    },
}


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, by section. `models` are of every kind."""

    state_dir: Path = Path("~/.local/state/turnout")
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    objects: ObjectSettings = field(default_factory=ObjectSettings)
    outbound: OutboundSettings = field(default_factory=OutboundSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    gangs: GangSettings = field(default_factory=GangSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    costs: CostSettings = field(default_factory=CostSettings)
    models: tuple[Model, ...] = ()

    @property
    def video_models(self) -> tuple[Model, ...]:
        return tuple(model for model in self.models if model.video is not None)

    @property
    def models_on_ray(self) -> tuple[Model, ...]:
        """Where the service runs on Ray: the video models whose gangs run there."""
        return tuple(m for m in self.video_models if m.gang.run_by(Runner.RAY) is Runner.RAY)

    def model(self, name: str) -> Model:
        for model in self.models:
            if model.name == name:
                return model
        raise Misconfigured(f"there is no model {name}; configured: {', '.join(m.name for m in self.models)}")

    def of_computing(self) -> "Config":
        """What those who compute need to know of it: no credential is in it, nor how users are served."""
        return Config(
            state_dir=self.state_dir,
            outbound=OutboundSettings(ca_file=self.outbound.ca_file),
            telemetry=self.telemetry,
            gangs=self.gangs,
            worker=self.worker,
            models=self.models,
        )

    def with_settings(self, **values: Any) -> "Config":
        """Some settings changed, by their flat names."""
        own = {name: value for name, value in values.items() if name not in SECTIONS}
        for section in {SECTIONS[name] for name in values.keys() & SECTIONS.keys()}:
            inside = {name: value for name, value in values.items() if SECTIONS.get(name) == section}
            own[section] = replace(getattr(self, section), **inside)
        return replace(self, **own)


_SETTINGS = [
    (section.name, setting)
    for section in fields(Config)
    if section.name not in ("state_dir", "models")
    for setting in fields(getattr(Config(), section.name))
]
SECTIONS: Mapping[str, str] = {setting.name: section for section, setting in _SETTINGS}
"""The section that a setting lies in, by the setting's name. `state_dir` and the models lie in none."""
SECRETS = frozenset(setting.name for _, setting in _SETTINGS if setting.metadata.get("secret"))


@dataclass(frozen=True, slots=True)
class Loaded:
    """`origins` says for each setting where its value came from."""

    config: Config
    origins: Mapping[str, str]


_KNOWN = {"models", "state_dir", *SECTIONS}
_FORMER = {"vllm_zygote": "vllm_fork_server"}  # names up to 0.2.0
_NO_SETTINGS = {
    *("models", "url", "api_key", "join_token", "join_token_file", "gang_model", "gang_service_file"),
}  # variables that others read
_CONFIG = TypeAdapter(Config)


def load(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None) -> Loaded:
    """Merges all sources. `flags` with a None value do not count; `file` None means ./turnout.yaml if it is there."""
    given = {name: value for name, value in flags.items() if value is not None}
    sources = (
        *_from_file(file),
        *_from_environ(environ),
        *((f"--{name.replace('_', '-')}", {name: value}) for name, value in given.items()),
    )
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_KNOWN, "default")
    for source, found in sources:
        for said, value in found.items():
            name = _FORMER.get(said, said)
            if name not in _KNOWN:
                raise Misconfigured(
                    f"{source}: there is no setting {name!r}{_meant(name, _KNOWN) or '; `turnout config` shows all'}"
                )
            values[name] = value
            origins[name] = source
    declared = named_values(values.pop("models", DEFAULT_MODELS), "models")
    models = tuple(_model(name, named_values(said, f"models.{name}")) for name, said in declared.items())
    for model in models:
        with _blaming(model.name):
            check_version(model, models)
    config = _validated(values, origins)
    if config.costs.budgets and not config.costs.gpu_prices:
        raise Misconfigured(f"{origins['budgets']}: budgets: without gpu_prices nothing is ever spent")
    if any(model.name == config.tasks.prompt_model for model in models if model.video is not None):
        raise Misconfigured(f"{origins['prompt_model']}: prompt_model: a video model rewrites no prompts")
    state_dir = config.state_dir.expanduser().absolute()
    return Loaded(replace(config, state_dir=state_dir, models=models), origins)


def settings_of(config: Config) -> dict[str, Any]:
    """Every setting by its flat name. Secrets are in it."""
    found = {name: getattr(getattr(config, section), name) for name, section in SECTIONS.items()}
    return {"state_dir": config.state_dir, **found}


def dump(config: Config) -> dict[str, Any]:
    """The configuration as a file's content: loading it gives the same configuration. Secrets are in it."""
    values: dict[str, Any] = _CONFIG.dump_python(config, mode="json")
    models = {m.pop("name"): m | _video_fields(m.pop("video")) for m in values["models"]}
    settings = {name: values[section][name] for name, section in SECTIONS.items()}
    return {"state_dir": values["state_dir"], **settings, "models": models}


def _validated(values: Mapping[str, Any], origins: Mapping[str, str]) -> Config:
    given: dict[str, Any] = {}
    for name, value in values.items():
        section = SECTIONS.get(name)
        (given if section is None else given.setdefault(section, {}))[name] = value
    try:
        return _CONFIG.validate_python(given)
    except ValidationError as err:
        problem = err.errors()[0]
        place = [str(part) for part in problem["loc"] if part not in SECTIONS.values()]
        raise Misconfigured(f"{origins[place[0]]}: {'.'.join(place)}: {problem['msg']}") from err


def _from_file(file: Path | None) -> list[tuple[str, Mapping[str, Any]]]:
    path = file or Path("turnout.yaml")
    if file is None and not path.exists():
        return []
    return [(str(path), read_config_file(path))]


def _video_fields(video: dict[str, Any] | None) -> dict[str, Any]:
    """As a file declares them: adapters by name."""
    if video is None:
        return {}
    return {**video, "loras": {lora.pop("name"): lora for lora in video["loras"]}}


def _from_environ(environ: Mapping[str, str]) -> list[tuple[str, Mapping[str, Any]]]:
    """A variable that is no setting is not ours, unless it is nearly one: that is a typo."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for variable, value in environ.items():
        name = variable.removeprefix("TURNOUT_").lower()
        if not variable.startswith("TURNOUT_") or name in _NO_SETTINGS:
            continue
        if name == "port" and value.startswith("tcp://"):
            raise Misconfigured(
                "TURNOUT_PORT: Kubernetes sets it for a Service named turnout; give the pod enableServiceLinks: false"
            )
        if name in _KNOWN or name in _FORMER:
            found.append((variable, {name: value}))
        elif hint := _meant(name, _KNOWN, cutoff=0.75):
            raise Misconfigured(f"{variable}: there is no setting {name!r}{hint}")
    return found


def _meant(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    close = get_close_matches(given, known, 1, cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _model(name: str, declared: Mapping[str, Any]) -> Model:
    """A model as the file declares it; its engine is wan unless it says otherwise."""
    with _blaming(name):
        model = read_model({"engine": "wan", **declared, "alias": name})
        check_served(model)
    return model


@contextmanager
def _blaming(name: str) -> Generator[None]:
    """Says which model of the file is wrong."""
    try:
        yield
    except InvalidRequest as err:
        said = err.message.replace("model_name", "weights")  # as files call it
        if err.code == "unknown_parameter":
            meant = _meant((err.param or "").rpartition(".")[2], DECLARED)
            said = f"{said.rstrip('.')}{meant}" if meant else f"{said} Known: {', '.join(DECLARED)}."
        raise Misconfigured(f"models.{name}: {said}") from err
