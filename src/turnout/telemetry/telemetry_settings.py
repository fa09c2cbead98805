"""Settings of logs, metrics and traces."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator

from turnout.setting_types import Count, Share

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


def _otlp_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("an http or https URL without a password, as http://127.0.0.1:4318/v1/traces")
    return url


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    log_level: LogLevel = "info"
    log_quota_bytes: Count = 256 * 2**20
    state_quota_bytes: Count | None = None
    metrics_auth: bool = False
    traces_endpoint: Annotated[str, AfterValidator(_otlp_url)] | None = None
    traces_sample: Share = 0.01
