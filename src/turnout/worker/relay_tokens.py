"""What a gateway and a worker show each other, derived from secrets that never travel themselves."""

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


PROBE_PATH = "/probe/"


def probe_answer(probe_key: str, nonce: str) -> str:
    """What the worker that made up `probe_key` says when it is asked for `/probe/{nonce}`."""
    return hmac.new(probe_key.encode(), f"turnout probe {nonce}".encode(), hashlib.sha256).hexdigest()
