"""Which certificates our own clients trust."""

import ssl
from pathlib import Path


def client_tls(ca_file: Path | None) -> ssl.SSLContext:
    """Trusts the certificates in the file besides the system's."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context
