"""How an engine server is started, as data, and which extra arguments a user may give it. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnout.errors import InvalidRequest
from turnout.fleet.machine_rules import Gpu

LOOPBACK = "127.0.0.1"

# The paths of OpenAI's dialect that every engine serves. The relay passes no others: engines have control paths
# (/sleep, /metrics, /collective_rpc, /slots …) on the same port, without a key.
DIALECT = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})


@dataclass(frozen=True, slots=True)
class Program:
    """How this machine runs an engine: the start of its command line, environment variables that it needs here, and
    arguments that every model gets."""

    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """One engine to be started. A server listens on loopback, asks for `key` if there is one, which is in its
    `environ`, and answers on `health_path` once it has loaded. A gang has no `port`: it makes its `ready_file`, touches its
    `alive_file` and reads its `access_file` instead; these go when it ends. `sleeps`: it has /sleep, /wake_up and /is_sleeping.
    `grace_s`: how long it may take to exit after SIGTERM. `drains`: it may get SIGTERM while it works, because it puts its task
    back by itself."""

    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    port: int = 0
    health_path: str = "/health"
    sleeps: bool = False
    grace_s: float = 10.0
    ready_file: Path | None = None
    alive_file: Path | None = None
    access_file: Path | None = None
    drains: bool = False
    key: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str | None:
        return f"{LOOPBACK}:{self.port}" if self.port else None


def gpu_environ(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Makes only these GPUs visible. NVML numbers them by bus; by default CUDA puts the fastest first."""
    seen = ",".join(str(gpu.index) for gpu in gpus)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": seen}


@dataclass(frozen=True, slots=True)
class Flag:
    """An allowed argument. `value` is what its value must match in full; None means that it takes none."""

    name: str
    value: str | None = None


INTEGER = r"-?[0-9]{1,18}"
NUMBER = r"[0-9]{1,12}(\.[0-9]{1,12})?"
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"


def choice(*words: str) -> str:
    return "|".join(re.escape(word) for word in words)


def check_flags(arguments: Sequence[str], allowed: Sequence[Flag], fields: Mapping[str, str]) -> None:
    """Raises InvalidRequest for an argument that is not allowed. `fields` names the flags that a model's fields set.

    Only whole names pass: engines accept abbreviations, so a prefix of a forbidden flag must be refused, too.
    """
    known = {flag.name: flag for flag in allowed}
    words = list(arguments)
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name in fields:
            raise _refusal(f"{name} is set by the model's field {fields[name]}")
        flag = known.get(name)
        if flag is None:
            raise _refusal(f"{name[:80]!r} is not an allowed argument; allowed: {', '.join(sorted(known))}")
        if flag.value is None:
            if equals:
                raise _refusal(f"{name} takes no value")
            continue
        if not equals:
            if not words:
                raise _refusal(f"{name} needs a value")
            value = words.pop(0)
        if re.fullmatch(flag.value, value) is None:
            raise _refusal(f"{name} does not take {value[:80]!r}")


def check_weights(weights: str) -> None:
    """Raises InvalidRequest for what is no name or path, or would be read as a flag."""
    if not weights or weights.startswith("-") or not weights.isprintable():
        raise InvalidRequest(f"{weights[:80]!r} is not a name or path of weights", param="weights")


def _refusal(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="arguments", code="argument_not_allowed")
