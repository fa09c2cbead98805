"""What may leave a machine: text without secrets, and records reduced to fields that are known to hold nothing private. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

HIDDEN = "•••"
_SHORTEST = 6  # a shorter secret would be found in innocent words
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


def log_lines(lines: Iterable[str], *, foreign: bool = False) -> list[str]:
    """Our own lines, by field; of others (engines print prompts) only how many there were, unless they are asked for."""
    kept: list[str] = []
    dropped = 0
    for line in lines:
        try:
            parsed: object = json.loads(line)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            kept.append(json.dumps(_known(cast("dict[str, Any]", parsed)), ensure_ascii=False))
        elif foreign:
            kept.append(line)
        else:
            dropped += 1
    return [*kept, *([f"({dropped} lines of other programs were left out)"] if dropped else [])]


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _LOG_FIELDS:
            shown[name] = value
        elif name in _WORDS:
            shown[name] = str(value)[:_WORDS_CHARS]
    return shown


def only(record: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name in fields}
