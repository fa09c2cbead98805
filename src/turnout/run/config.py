"""The one configuration object, read once where a program starts, with the origin of every value.

Later sources win: default, `turnout.yaml`, `TURNOUT_*` variables, flags. Besides this, only the CLI's options read
the environment (`turnout worker` has some of its own), and only where a program starts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from turnout.chat.quota_rules import ChatLimits
from turnout.engines.servers.engine_servers import check_served
from turnout.errors import InvalidRequest, Misconfigured
from turnout.fleet.declared_models import read_model
from turnout.fleet.model_declaration import ModelDeclaration
from turnout.fleet.serving import EngineKind, ServedModel, gang_model
from turnout.fleet.video_model_rules import Model, Runner
from turnout.store.address_rules import is_safe_issuer_url
from turnout.tasks.task_rules import Limits
from turnout.tenants.budget_rules import Budget
from turnout.tenants.key_rules import Role

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+sentinel://")

AcceptAfter: TypeAlias = Literal["write", "fsync", "replica"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SomeSeconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(gt=0)]
Limit: TypeAlias = Annotated[int, Field(ge=0)]
Price: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]


def _redis_url(url: str) -> str:
    if not url.startswith(_REDIS_SCHEMES):
        raise ValueError("a Redis URL begins with redis://, rediss://, unix:// or redis+sentinel://")
    return url


def _blobs(where: str) -> str:
    if "://" in where and not where.startswith("s3://"):
        raise ValueError("objects go to a directory or to s3://bucket/prefix")
    return where


def _otlp_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("an http or https URL without a password, as http://127.0.0.1:4318/v1/traces")
    return url


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
class OidcSettings:
    """Whose tokens are taken beside keys. `roles` gives the role for a value of `role_claim`; a token with none of them has
    `default_role`, and is refused if that is None."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    issuer: str
    audience: str
    tenant_claim: str = "tenant"
    role_claim: str = "roles"
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])
    default_role: Role | None = Role.USER

    def __post_init__(self) -> None:
        if Role.WORKER in (self.default_role, *self.roles.values()):
            raise ValueError("a worker joins with a key: no login can have the role worker")
        if not is_safe_issuer_url(self.issuer):
            raise ValueError("the issuer is not an https URL (http is for this machine alone)")


@dataclass(frozen=True, slots=True)
class GangPods:
    """The pods of a model's gangs: how many, and the template (`metadata`, `spec`) of each."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    template: Mapping[str, Any]
    pods: int = 1

    def __post_init__(self) -> None:
        spec: Any = self.template.get("spec")
        if not isinstance(spec, Mapping) or not cast("Mapping[str, Any]", spec).get("containers"):
            raise ValueError("a template has a spec with containers")
        if self.pods < 1:
            raise ValueError("a gang has one pod at least")


@dataclass(frozen=True, slots=True)
class KubernetesJobs:
    """How the manager makes jobs for models whose runner is `job`. `gangs` says the pods of each model, `*` those of all
    others; `launcher` tells one installation's jobs from another's; `owner` is a ConfigMap with which the jobs go."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    gangs: Mapping[str, GangPods]
    kind: Literal["job", "pytorchjob", "rayjob"] = "pytorchjob"
    namespace: str | None = None
    launcher: str = "turnout"
    owner: str | None = None
    deadline_s: int = 7200
    ttl_s: int = 600
    pending_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Config:
    """`redis_url` None means an embedded server in the state directory; `blobs` None means `objects/` there.

    `served` are the models that a file's `models` declare, of every kind; `worker_memory_bytes` bounds what this
    machine's replicas may take together, and `min_resident_s` is how long one stays, whoever waits for its room.
    `trusted_proxies` are networks, `cors_origins` origins of web pages, with commas between them. `public_url` is how clients reach
    the gateways, and `url_ttl_s` how long the URLs that are signed for them are good. `no_auth` needs no key on
    loopback; `open_key` is the token that requests then count as having, and `turnout up` sets it.
    `gpu_prices` are by kind of GPU, an hour, in `currency`; `budgets` by tenant, `*` for all others.
    """

    host: str = "127.0.0.1"
    port: Port = 8000
    state_dir: Path = Path("~/.local/state/turnout")
    redis_url: Annotated[str, AfterValidator(_redis_url)] | None = field(
        default=None, metadata={"secret": True}
    )
    redis_password: str | None = field(default=None, metadata={"secret": True})
    redis_sentinel_password: str | None = field(default=None, metadata={"secret": True})
    redis_prefix: str = "turnout"
    accept_after: AcceptAfter = "fsync"
    blobs: Annotated[str, AfterValidator(_blobs)] | None = None
    blobs_endpoint: str | None = None
    blobs_shared: bool = False
    log_level: LogLevel = "info"
    log_quota_bytes: Count = 256 * 2**20
    state_quota_bytes: Count | None = None
    lease_s: Seconds = 15.0
    stall_s: Seconds = 20.0
    step_timeout_s: Seconds = 600.0
    meeting_timeout_s: Seconds = 300.0
    collective_timeout_s: Seconds = 1800.0
    drain_s: SomeSeconds = 30.0
    gateway_drain_s: SomeSeconds = 3.0
    gateway_linger_s: SomeSeconds = 0.0
    retention_s: Seconds = 7 * 86_400.0
    max_attempts: Count = 3
    checkpoint_steps: Count = 4
    checkpoint_s: SomeSeconds = 20.0
    preview_steps: Count = 4
    limit_waiting: Limit = 100
    limit_running: Limit = 8
    limit_submits_per_minute: Limit = 120
    limit_chat_requests_per_minute: Limit = 0
    limit_chat_tokens_per_minute: Limit = 0
    limit_chat_concurrency: Limit = 500
    metrics_auth: bool = False
    traces_endpoint: Annotated[str, AfterValidator(_otlp_url)] | None = None
    traces_sample: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.01
    max_connections: Count = 8192
    max_connections_per_address: Count = 1024
    trusted_proxies: str = ""
    max_body_bytes: Count = 24 * 2**20
    max_bodies_bytes: Count = 512 * 2**20
    max_image_pixels: Count = 16_000_000
    cors_origins: str = ""
    public_url: str | None = None
    url_ttl_s: Seconds = 86_400.0
    no_auth: bool = False
    open_key: str | None = field(default=None, metadata={"secret": True})
    ray_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    ray_interface: str | None = None
    ray_place_s: Seconds = 120.0
    ray_fit_s: Seconds = 300.0
    ray_turn_s: Seconds = 300.0
    ray_health_period_s: Seconds = 5.0
    ray_health_timeout_s: Seconds = 30.0
    ray_manager_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ray_ingress_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    allow_private_urls: bool = False
    ca_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    oidc: OidcSettings | None = None
    kubernetes_jobs: KubernetesJobs | None = None
    allow_registered_commands: bool = False
    vllm: str = "vllm"
    vllm_zygote: bool = False
    webhook_secret: str | None = field(default=None, metadata={"secret": True})
    worker_memory_bytes: Count | None = None
    worker_engines: tuple[EngineKind, ...] | None = None
    worker_commands: tuple[str, ...] = ()
    worker_weights_dirs: tuple[Path, ...] | None = None
    worker_downloads: bool = True
    min_resident_s: SomeSeconds = 30.0
    gpu_prices: Mapping[str, Price] = field(default_factory=dict[str, float])
    budgets: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    currency: Annotated[str, Field(pattern=r"^[A-Za-z]{3}$")] = "USD"
    served: tuple[ServedModel, ...] = ()

    @property
    def models(self) -> tuple[Model, ...]:
        """The video models among those that are declared, as gangs know them."""
        return tuple(model for served in self.served if (model := gang_model(served)) is not None)

    @property
    def models_on_ray(self) -> tuple[Model, ...]:
        """Where the service runs on Ray: the video models whose gangs run there."""
        ours = {s.name for s in self.served if s.video and s.video.run_by(Runner.RAY) is Runner.RAY}
        return tuple(model for model in self.models if model.name in ours)

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """Raises Misconfigured."""
        origins = tuple(one.strip() for one in self.cors_origins.split(",") if one.strip())
        for origin in origins:
            parts = urlsplit(origin)
            if origin != "*" and f"{parts.scheme}://{parts.netloc}" != origin:
                raise Misconfigured(f"cors_origins: {origin} is no origin like https://app.example.com")
        if self.no_auth and "*" in origins:
            raise Misconfigured("cors_origins: with no_auth, name the origins: * would let any web page in")
        return origins

    @property
    def limits(self) -> Limits:
        return Limits(self.limit_waiting, self.limit_running, self.limit_submits_per_minute)

    @property
    def chat_limits(self) -> ChatLimits:
        return ChatLimits(
            self.limit_chat_requests_per_minute,
            self.limit_chat_tokens_per_minute,
            self.limit_chat_concurrency,
        )

    def model(self, name: str) -> Model:
        for model in self.models:
            if model.name == name:
                return model
        raise Misconfigured(f"there is no model {name}; configured: {', '.join(m.name for m in self.models)}")


@dataclass(frozen=True, slots=True)
class Loaded:
    """`origins` says for each field where its value came from."""

    config: Config
    origins: Mapping[str, str]


_KNOWN = {"models", *(f.name for f in fields(Config) if f.name != "served")}
_NO_SETTINGS = {"models", "url", "api_key", "join_token", "gang_model"}  # variables that others read
_CONFIG = TypeAdapter(Config)


def load(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None = None) -> Loaded:
    """Merges all sources. `flags` with a None value do not count; `file` None means ./turnout.yaml if it is there."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_KNOWN, "default")
    for source, found in (
        *_from_file(file),
        *_from_environ(environ),
        *(
            (f"--{name.replace('_', '-')}", {name: value})
            for name, value in flags.items()
            if value is not None
        ),
    ):
        for name, value in found.items():
            if name not in _KNOWN:
                raise Misconfigured(
                    f"{source}: there is no setting {name!r}{_meant(name, _KNOWN) or '; `turnout config` shows all'}"
                )
            values[name] = value
            origins[name] = source
    models = values.pop("models", DEFAULT_MODELS)
    named = {
        name: _mapping(settings, f"models.{name}") for name, settings in _mapping(models, "models").items()
    }
    values["served"] = tuple(_served(name, given) for name, given in named.items())
    try:
        config = _CONFIG.validate_python(values)
    except ValidationError as err:
        problem = err.errors()[0]
        name = str(problem["loc"][0]) if problem["loc"] else "?"
        where = ".".join(map(str, problem["loc"])) or name
        raise Misconfigured(f"{origins.get(name, '?')}: {where}: {problem['msg']}") from err
    if config.budgets and not config.gpu_prices:
        raise Misconfigured(f"{origins['budgets']}: budgets: without gpu_prices nothing is ever spent")
    object.__setattr__(config, "state_dir", config.state_dir.expanduser().absolute())
    return Loaded(config, origins)


def dump(config: Config) -> dict[str, Any]:
    """The configuration as a file's content: loading it gives the same configuration. Secrets are in it."""
    values: dict[str, Any] = _CONFIG.dump_python(config, mode="json")
    values["models"] = {m.pop("name"): m | _video_fields(m.pop("video")) for m in values.pop("served")}
    return values


def _from_file(file: Path | None) -> list[tuple[str, Mapping[str, Any]]]:
    path = file or Path("turnout.yaml")
    if file is None and not path.exists():
        return []
    try:
        content: object = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as err:
        raise Misconfigured(f"{path}: {err}") from err
    return [(str(path), _mapping(content or {}, str(path)))]


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
        if name in _KNOWN:
            found.append((variable, {name: value}))
        elif hint := _meant(name, _KNOWN, cutoff=0.75):
            raise Misconfigured(f"{variable}: there is no setting {name!r}{hint}")
    return found


def _meant(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    close = get_close_matches(given, known, 1, cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Misconfigured(f"{where}: expected a mapping of names to values")
    return cast("Mapping[str, Any]", value)


def _served(name: str, declared: Mapping[str, Any]) -> ServedModel:
    """A model as the file declares it; its engine is wan unless it says otherwise."""
    try:
        model = read_model({"engine": "wan", **declared, "alias": name})
        check_served(model)
    except InvalidRequest as err:
        known = [field.name for field in fields(ModelDeclaration)]
        hint = ""
        if err.code == "unknown_parameter":
            hint = _meant(err.param or "", known) or f" Known: {', '.join(known)}."
        raise Misconfigured(f"models.{name}: {err}{hint}") from err
    return model
