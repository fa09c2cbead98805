"""Every error that Turnout raises on purpose.

TurnoutError
├── InvalidRequest        400  the request breaks a rule; `param` names the field
│   └── TooLarge          413  the body or the image is over a limit
├── Unauthorized          401  no key, or an unknown one
├── OverBudget            402  the tenant has spent its budget of this month
├── Forbidden             403  the key's role may not do this
├── NotFound              404  no such thing, or not this tenant's
├── Conflict              409  it contradicts what was done before
├── Limited               429  over a tenant's limit; `retry_after_s` says when to come back
├── Unavailable           503  a part is down or not ready; a retry can help
│   └── Newer             503  a newer version wrote this record; it is left as it is
├── Stale                      the event came too late and changed nothing (never reaches a user)
└── Misconfigured              the operator's configuration is wrong (printed, exit code 2)
"""

from dataclasses import dataclass
from typing import cast


@dataclass
class TurnoutError(Exception):
    """`status`, `kind` and `code` are what HTTP clients see; `retryable` says whether to try again."""

    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    status = 500
    kind = "server_error"
    retryable = False

    def __str__(self) -> str:
        return self.message


class InvalidRequest(TurnoutError):
    status = 400
    kind = "invalid_request_error"


class TooLarge(InvalidRequest):
    status = 413


class Unauthorized(TurnoutError):
    status = 401
    kind = "authentication_error"


class OverBudget(TurnoutError):
    status = 402
    kind = "insufficient_quota"


class Forbidden(TurnoutError):
    status = 403
    kind = "permission_error"


class NotFound(TurnoutError):
    status = 404
    kind = "not_found_error"


def no_such(thing: str, name: str, param: str | None = None) -> NotFound:
    """The one refusal of a name that nothing has; `param` where the name was given in another field."""
    return NotFound(f"There is no {thing} {name[:100]}.", param or thing, f"{thing}_not_found")


class Conflict(TurnoutError):
    status = 409
    kind = "conflict_error"


@dataclass
class Limited(TurnoutError):
    """`header_lines` tell the limits, and what is left of them."""

    header_lines: bytes = b""

    status = 429
    kind = "rate_limit_error"
    retryable = True


class Unavailable(TurnoutError):
    status = 503
    kind = "server_error"
    retryable = True


class Newer(Unavailable):
    """This version cannot read the record, and must not stop over it."""


class Stale(TurnoutError):
    """The task has moved on: another attempt holds it, or it has ended."""


class Misconfigured(TurnoutError):
    pass


def first_in(error: BaseException) -> BaseException:
    """What a task group wrapped; of several, the first."""
    if isinstance(error, BaseExceptionGroup):
        return first_in(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error
