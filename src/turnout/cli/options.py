"""The options that commands share, and which server they name. The only place of the CLI that reads the environment;
it prints nothing and opens no connection."""

import inspect
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast
from urllib.parse import urlsplit

import typer

from turnout.errors import InvalidRequest, Misconfigured
from turnout.store.address_rules import is_server_url

if TYPE_CHECKING:
    from turnout.cli.client import ApiClient
    from turnout.run.config import Loaded

P = ParamSpec("P")

SERVICE_FILE = "service.json"

_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT]?)(I?)B)?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file (default: ./turnout.yaml)."),
]
StateDirOption = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="Where a local Turnout keeps its data.")
]
UrlOption = Annotated[str | None, typer.Option("--url", metavar="URL", help="Server (or TURNOUT_URL).")]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="API key (or TURNOUT_API_KEY).")]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="Certificates to trust besides the system's (or TURNOUT_CA_FILE)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where to send requests. `origin` says how it was found; `pid` is known for one that `turnout up` runs."""

    url: str
    api_key: str | None
    origin: str
    pid: int | None = None

    def __repr__(self) -> str:
        return f"ServerAddress({self.url!r}, {self.origin})"  # never the key


@dataclass(frozen=True, slots=True)
class Common:
    """What was given on the command line, before or after the command's name."""

    config_file: Path | None = None
    state_dir: Path | None = None
    url: str | None = None
    api_key: str | None = None
    ca_file: Path | None = None

    def load(self, **flags: Any) -> "Loaded":
        """The configuration with `flags` on top; a flag that is None does not count."""
        from turnout.run import config

        return config.load(
            {"state_dir": self.state_dir, "ca_file": self.ca_file, **flags}, os.environ, self.config_file
        )

    @property
    def where(self) -> str:
        """The options, as a user would type them, by which another command finds the same service."""
        given = (("--config", self.config_file), ("--state-dir", self.state_dir))
        return "".join(f" {option} {shlex.quote(str(path.absolute()))}" for option, path in given if path)

    def server(self) -> ServerAddress:
        """The server to talk to: from flags, the environment, `turnout up`'s service file, or the default."""
        return find_server(self.url, self.api_key, os.environ, lambda: self.load().config)

    def call(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """One request to the server, and its answer."""
        with self.client() as client:
            return client.call(method, *path, body=body, params=params)

    def client(self) -> "ApiClient":
        from turnout.cli.client import ApiClient

        server = self.server()
        return ApiClient(
            server, self.load().config.outbound.ca_file if server.url.startswith("https:") else None
        )


def seconds(given: str, option: str) -> int:
    """`30d`, `12h`, `45m`, `90s` or seconds alone."""
    found = _DURATION.fullmatch(given.strip())
    if found is None:
        raise InvalidRequest(f"{option} is a time like 30d, 12h or 45m; not {given}")
    return int(found[1]) * _SECONDS[found[2]]


def size_in_bytes(given: str, option: str) -> int:
    """`40GiB`, `500MB`, or bytes alone."""
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        raise InvalidRequest(f"{option} is a size like 40GiB or 500MB; not {given}", option)
    amount, prefix, binary = found.groups(default="")
    return int(float(amount) * (1024 if binary else 1000) ** _POWERS[prefix.upper()])


def find_server(
    url: str | None, api_key: str | None, environ: Mapping[str, str], config: Callable[[], Any]
) -> ServerAddress:
    """`config` is called only when no URL was given. A key from the service file goes to no other server."""
    key = api_key or environ.get("TURNOUT_API_KEY") or None
    if url:
        return ServerAddress(_checked(url, "--url"), key, "from --url")
    if from_environ := environ.get("TURNOUT_URL"):
        return ServerAddress(_checked(from_environ, "TURNOUT_URL"), key, "from TURNOUT_URL")
    settings = config()
    local = _read_service_file(settings.state_dir / SERVICE_FILE)
    if local is None:
        return ServerAddress(f"http://127.0.0.1:{settings.gateway.port}", key, "the default")
    return replace(local, api_key=key) if key else local


def _read_service_file(file: Path) -> ServerAddress | None:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    except OSError as err:
        raise Misconfigured(f"{file}: {err.strerror}") from err
    try:
        content: object = json.loads(text)
    except ValueError as err:
        raise Misconfigured(f"{file}: not JSON; remove it, or start Turnout again") from err
    if not isinstance(content, dict):
        raise Misconfigured(f"{file}: expected url, api_key and pid; remove it, or start Turnout again")
    fields = cast("dict[str, object]", content)
    url, api_key, pid = fields.get("url"), fields.get("api_key"), fields.get("pid")
    if not isinstance(url, str):
        raise Misconfigured(f"{file}: no url in it; remove it, or start Turnout again")
    return ServerAddress(
        _checked(url, str(file)),
        api_key if isinstance(api_key, str) else None,
        f"from {file}",
        pid if isinstance(pid, int) else None,
    )


def _checked(url: str, origin: str) -> str:
    if not is_server_url(url):
        raise Misconfigured(f"{origin}: a server's URL looks like http://127.0.0.1:8000")
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise Misconfigured(f"{origin}: no user or password in the URL; keys go in --key or TURNOUT_API_KEY")
    path = parts.path.rstrip("/").removesuffix("/v1")  # OPENAI_BASE_URL ends so, and people copy it
    return f"{parts.scheme}://{parts.netloc}{path}"


def with_common(command: Callable[Concatenate[Common, P], None]) -> Callable[..., None]:
    """Gives a command the options of a client; they are passed to it as its first argument."""
    return _widened(command, {"url": UrlOption, "key": KeyOption, "ca_file": CaOption, **_SETTINGS})


def with_config(command: Callable[Concatenate[Common, P], None]) -> Callable[..., None]:
    """The same for a command that needs the configuration only."""
    return _widened(command, _SETTINGS)


_SETTINGS: Mapping[str, Any] = {"config": ConfigOption, "state_dir": StateDirOption}


def _widened(
    command: Callable[Concatenate[Common, P], None], options: Mapping[str, Any]
) -> Callable[..., None]:
    """Adds `options` to the signature that Typer reads. They may also be given before the command's name."""

    @wraps(command)
    def run(ctx: typer.Context, **given: Any) -> None:
        before = ctx.obj if isinstance(ctx.obj, Common) else Common()
        own = {name: value for name, value in given.items() if name not in options}
        common = Common(
            given.get("config") or before.config_file,
            given.get("state_dir") or before.state_dir,
            given.get("url") or before.url,
            given.get("key") or before.api_key,
            given.get("ca_file") or before.ca_file,
        )
        cast("Callable[..., None]", command)(common, **own)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [
        *(parameter.replace(kind=keyword) for parameter in own),
        *(inspect.Parameter(n, keyword, default=None, annotation=a) for n, a in options.items()),
        inspect.Parameter("ctx", keyword, annotation=typer.Context),
    ]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run
