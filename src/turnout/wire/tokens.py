"""What a gateway shows a worker's relay, derived from the secret that only they and the registry share."""

import hashlib
import hmac

# The relay takes fixed paths, so a gateway names the replica in a header.
REPLICA_HEADER = b"x-turnout-replica"


def relay_token(secret: str) -> str:
    """Never the secret itself: who sees it on the way can use the relay, but not speak as the worker."""
    return relay_token_from_digest(hashlib.sha256(secret.encode()).hexdigest())


def relay_token_from_digest(secret_sha256: str) -> str:
    """The same, for a registry that keeps only the secret's SHA-256 (hexadecimal)."""
    return hmac.new(secret_sha256.encode(), b"turnout relay", hashlib.sha256).hexdigest()
