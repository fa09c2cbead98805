"""What may leave a machine: text without secrets, and records reduced to fields that are known to hold nothing private. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

HIDDEN = "•••"
_SHORTEST = 6  # a shorter secret would be found in innocent words
_SHORTEST_WORD = 8  # of a setting that may be no secret
_PATTERNS = (
    re.compile(r"\btk-[\w.~-]{8,}"),
    re.compile(r"\bwhsec_[\w+/=-]{8,}"),
    re.compile(r"\b(?:hf|sk|ghp|glpat|xox[bp])[_-][\w-]{10,}"),
    re.compile(r"\bAKIA[0-9A-Z]{12,}"),
    re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"),
    re.compile(r"(?<=://)[^/\s@\"']+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[^\s\"',}]+"),
    re.compile(r"(?i)[?&#](?:code|token|key|sig)=[^\s&\"']+"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
)
# Settings whose words are ours, or names that people chose: of others a bundle says only that they are set.
_SETTINGS = frozenset(
    [
        "accept_after",
        "currency",
        "dtype",
        "engine",
        "family",
        "host",
        "kind",
        "log_level",
        "name",
        "quantization",
        "redis_prefix",
        "runner",
    ]
)
_MAPPINGS = frozenset({"budgets", "gpu_prices"})  # by tenant, by kind of GPU
# Of our own log lines: everything else that a line may have (prompts in an error's words, say) stays here.
_LOG_FIELDS = frozenset(
    [
        "timestamp",
        "level",
        "event",
        "role",
        "task",
        "attempt",
        "gang",
        "rank",
        "worker",
        "model",
        "request",
        "trace",
        "tenant",
        "replica",
        "gateway",
        "manager",
        "loop",
        "part",
        "step",
        "of",
        "ranks",
        "seconds",
        "step_s",
        "bytes",
        "count",
        "failures",
        "pause_s",
        "retry_at",
        "status",
        "code",
        "outcome",
        "failure",
        "version",
        "port",
        "pid",
        "state",
        "stage",
        "want",
        "gpus",
        "gpu",
        "xid",
        "workers",
        "replicas",
        "tries",
        "lease_s",
        "by",
        "xids",
        "stalled_s",
    ]
)
_WORDS = frozenset(
    {"reason", "error", "problem", "exception", "detail", "why"}
)  # by people or programs: cut short
_WORDS_CHARS = 300
TASK_FIELDS = frozenset(
    [
        "id",
        "object",
        "model",
        "status",
        "progress",
        "created_at",
        "completed_at",
        "expires_at",
        "seconds",
        "size",
        "attempt",
        "attempts",
        "stage",
        "step",
        "of",
        "eta_s",
        "queue_position",
        "priority",
        "started_at",
        "finished_at",
        "failures",
    ]
)


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """`secrets` are those that are known; what merely looks like one goes as well."""
    for secret in sorted((s for s in secrets if len(s) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    return text


def shown_setting(name: str, value: object) -> Any:
    """Numbers, and words that are known to be harmless. Of a URL its scheme, of all else only that it is there."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float) or name in _SETTINGS:
        return value
    if is_dataclass(value):
        return {one.name: shown_setting(one.name, getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping) and name in _MAPPINGS:
        return {key: shown_setting("", one) for key, one in cast("Mapping[str, object]", value).items()}
    if isinstance(value, tuple | list):
        return [shown_setting("", one) for one in cast("Sequence[object]", value)]
    text = str(cast("object", value))
    scheme, separator, _ = text.partition("://")
    return f"{scheme}://{HIDDEN}" if separator and scheme.isalpha() else HIDDEN if text else ""


def hidden_words(name: str, value: object) -> set[str]:
    """What `shown_setting` does not show, to be hidden wherever else it stands."""
    parts: list[tuple[str, object]] = []
    if value is None or isinstance(value, Enum | bool | int | float) or name in _SETTINGS:
        return set()
    if is_dataclass(value):
        parts = [(one.name, getattr(value, one.name)) for one in fields(value)]
    elif isinstance(value, Mapping):
        parts = [("", one) for one in cast("Mapping[str, object]", value).values()]
    elif isinstance(value, tuple | list | frozenset):
        parts = [("", one) for one in cast("Collection[object]", value)]
    else:
        text = str(value)
        pieces = re.findall(r"[^\s/?&=:@#,]+", text.partition("://")[2])
        return {word for word in (text, *pieces, *_argument_values(text)) if len(word) >= _SHORTEST_WORD}
    return set[str]().union(*(hidden_words(*part) for part in parts))


def _argument_values(text: str) -> set[str]:
    """Of a command's argument `--name=value`."""
    _, given, value = text.partition("=")
    return {value} if given and text.startswith("-") else set()


def own_lines(lines: Iterable[str]) -> list[str]:
    """The lines of a part of ours, by field. What is no such line was printed by somebody else, and is counted."""
    kept: list[str] = []
    dropped = 0
    for line in lines:
        try:
            parsed: object = json.loads(line)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            kept.append(json.dumps(_known(cast("dict[str, Any]", parsed)), ensure_ascii=False))
        else:
            dropped += 1
    return [*kept, *([f"({dropped} lines of other programs were left out)"] if dropped else [])]


def _known(line: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in line.items():
        if name in _LOG_FIELDS:
            shown[name] = value
        elif name in _WORDS:
            shown[name] = str(value)[:_WORDS_CHARS]
    return shown


def only(record: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name in fields}
