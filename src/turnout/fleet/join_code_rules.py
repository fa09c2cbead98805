"""One-time codes by which a machine joins as a worker, and the one command that it takes. Pure."""

import base64
import hmac
import shlex

from turnout.store.address_rules import is_loopback_name
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import Key, Role, mint

JOIN_CODE_S = 900
MAX_JOIN_CODE_S = 86_400
_PREFIX = "jc-"


def new_join_code(secret: str) -> str:
    """`secret` is random and url-safe."""
    return f"{_PREFIX}{secret}"


def is_join_code(token: str) -> bool:
    return token.startswith(_PREFIX)


def key_by_code(code: str, probe_key: str, name: str, now: float) -> tuple[Key, str]:
    """The worker key that a machine gets for a code, and its token. Whoever made the code up and the machine's own random
    `probe_key` give the same key again: so a machine that did not hear the answer asks once more."""

    def derived(what: str) -> bytes:
        return hmac.digest(code.encode(), f"{what}\n{probe_key}".encode(), "sha256")

    secret = base64.urlsafe_b64encode(derived("secret")).rstrip(b"=").decode()
    return mint(
        derived("id").hex()[:16], secret, TenantId("default"), Role.WORKER, name, now, for_one_worker=True
    )


def join_command(url: str, code: str) -> str:
    """What is typed on the machine that should join. From another one it works behind any NAT. The code is in the environment:
    others on that machine see arguments."""
    here = is_loopback_name(url.partition("://")[2])
    plain = url.startswith("http://") and not here
    flags = ("" if here else " --tunnel") + (" --allow-plaintext" if plain else "")
    return f"TURNOUT_JOIN_TOKEN={code} turnout worker --join {shlex.quote(url)}{flags}"
