"""Counts logins that failed, by address, and says when there were too many: keys, workers' secrets, codes, links.

A good key always works, whatever others did from the same address: many clients share one behind a NAT. So a login is
checked first, and only its refusal changes, to 429. That takes nothing from an attacker: a secret has 256 random
bits, and nobody guesses one at any rate. It makes clients with a dead key slow down, and attempts visible in the log.
"""

from collections.abc import Callable

from starlette.datastructures import Address

from turnout.errors import Limited, TurnoutError
from turnout.telemetry.log import get_log
from turnout.tenants.address_counts import AddressCounts

_MOST = 20  # failures in a window

_WRONG_SECRETS = frozenset(
    {"invalid_secret", "invalid_code", "invalid_invite", "share_not_found", "url_not_valid"}
)
"""The codes of errors that say that a secret was shown which is none. Keys are counted where they are looked up, because the relay
takes them, too."""


class LoginThrottle:
    def __init__(self, now: Callable[[], float]) -> None:
        self._failed = AddressCounts(now)

    def counted(self, client: Address | None, err: TurnoutError) -> TurnoutError:
        """What to answer to a request that failed: another error if it showed a wrong secret, as too many others from there did."""
        return err if err.code not in _WRONG_SECRETS or client is None else self.refused(client.host, err)

    def refused(self, address: str, err: TurnoutError) -> TurnoutError:
        """What to answer to a login that failed; logged for the first failure and for the first over the bound."""
        counted = self._failed.add(address)
        if counted is None:
            return err
        group, count, left_s = counted
        if count in (0, _MOST):
            get_log().warning("logins failed", address=group, failures=count + 1, reason=err.code)
        if count < _MOST:
            return err
        return Limited(
            "Too many logins from this address have failed.",
            code="too_many_failed_logins",
            retry_after_s=left_s,
        )
