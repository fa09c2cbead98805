"""Settings of what the page says of whoever runs it: a name, a logo, a footer, terms of use."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field

_MAX_LINES = 6
_WORDS = r"^[^\x00-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$"  # nothing that breaks or turns a line


@dataclass(frozen=True, slots=True)
class FooterLine:
    """`url` is where it leads, by https."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=100, pattern=_WORDS)]
    url: Annotated[str, Field(max_length=500)] | None = None

    def __post_init__(self) -> None:
        if self.url is not None and not _is_https(self.url):
            raise ValueError("the url of a footer line is no https URL")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """`logo` is a picture, `terms` a text: files on the gateway's machine."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=40, pattern=_WORDS)] = "Turnout"
    logo: Path | None = None
    footer: tuple[FooterLine, ...] = ()
    terms: Path | None = None

    def __post_init__(self) -> None:
        if len(self.footer) > _MAX_LINES:
            raise ValueError(f"the footer has more than {_MAX_LINES} lines")


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and parts.username is None and url.isprintable()
