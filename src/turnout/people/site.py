"""What the page says of whoever runs it. The files are read once, when a gateway starts: no request names a path."""

from dataclasses import dataclass
from pathlib import Path

from turnout.errors import InvalidRequest, Misconfigured
from turnout.people.site_settings import FooterLine, SiteSettings
from turnout.tenants.key_rules import secret_digest

_MAX_LOGO_BYTES = 256 * 1024
_MAX_TERMS_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class Logo:
    """`version` changes with the picture."""

    content: bytes
    type: str
    version: str


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of use. `id` is a digest of the text: whoever accepted other terms has not accepted these."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    name: str = "Turnout"
    logo: Logo | None = None
    footer: tuple[FooterLine, ...] = ()
    terms: Terms | None = None

    def accepted(self, terms: str | None) -> str:
        """The id of the terms that are accepted with `terms`; "" where there are none. Raises InvalidRequest."""
        if self.terms is None:
            return ""
        if terms != self.terms.id:
            raise InvalidRequest(
                "Accept the terms of use first (GET /v1/site/terms).", "terms", "terms_needed"
            )
        return self.terms.id


def open_site(settings: SiteSettings) -> Site:
    """Raises Misconfigured for a file that cannot be read, is too large, or is not what it should be."""
    return Site(
        settings.name,
        None if settings.logo is None else _logo(settings.logo),
        settings.footer,
        None if settings.terms is None else _terms(settings.terms),
    )


def _logo(path: Path) -> Logo:
    content = _read(path, "site.logo", _MAX_LOGO_BYTES)
    # SVG is not among them: it can hold scripts, and links to elsewhere.
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        kind = "image/png"
    elif content.startswith(b"\xff\xd8\xff"):
        kind = "image/jpeg"
    elif content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kind = "image/webp"
    else:
        raise Misconfigured(f"site.logo: {path} is no PNG, JPEG or WebP picture")
    return Logo(content, kind, secret_digest(content.hex())[:16])


def _terms(path: Path) -> Terms:
    try:
        text = _read(path, "site.terms", _MAX_TERMS_BYTES).decode("utf-8-sig").strip()
    except UnicodeDecodeError as err:
        raise Misconfigured(f"site.terms: {path} is no text in UTF-8") from err
    if not text:
        raise Misconfigured(f"site.terms: {path} is empty")
    return Terms(secret_digest(text)[:16], text)


def _read(path: Path, setting: str, most: int) -> bytes:
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(most + 1)
    except OSError as err:
        raise Misconfigured(f"{setting}: {path} cannot be read: {err.strerror}") from err
    if len(content) > most:
        raise Misconfigured(f"{setting}: {path} has more than {most // 1024} KiB")
    return content
