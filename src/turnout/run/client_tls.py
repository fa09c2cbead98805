"""Which certificates our own clients trust."""

import hashlib
import hmac
import re
import ssl
from collections.abc import Collection
from pathlib import Path

from turnout.errors import Misconfigured

_SHA256 = re.compile(r"[0-9a-f]{64}")


def client_tls(ca_file: Path | None) -> ssl.SSLContext:
    """Trusts the certificates in the file besides the system's."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as err:
            raise Misconfigured(f"ca_file {ca_file}: {tls_reason(err)}") from err
    return context


def read_fingerprints(given: Collection[str]) -> frozenset[str]:
    """SHA-256 of certificates, as openssl prints them or in plain hex. Raises Misconfigured."""
    read = frozenset(one.lower().removeprefix("sha256:").replace(":", "").strip() for one in given)
    for one in read:
        if not _SHA256.fullmatch(one):
            raise Misconfigured(f"{one[:80]!r} is not the SHA-256 of a certificate: 64 hexadecimal digits")
    return read


def pinned_tls(fingerprints: frozenset[str]) -> ssl.SSLContext:
    """Trusts exactly these certificates; neither their names nor who signed them count. They are checked at the end of
    the handshake, before anything is sent."""

    class PinnedConnection(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            shown = hashlib.sha256(self.getpeercert(binary_form=True) or b"").hexdigest()
            if not any(hmac.compare_digest(shown, one) for one in fingerprints):
                raise ssl.SSLCertVerificationError(
                    f"the gateway's certificate is not the pinned one: it is sha256:{shown}"
                )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = PinnedConnection
    return context


def tls_reason(err: OSError) -> str:
    if isinstance(err, ssl.SSLError):
        return str(err.reason or err).lower().replace("_", " ")
    return err.strerror or str(err)
