"""What a tenant may ask of chat models, and one gateway's share of it. Pure.

Each tenant has an account that all gateways use: requests and tokens flow into it by the minute, and it lends permits for
requests in flight. A gateway keeps a small share of each (a `TenantShare`), so that most requests are admitted without
asking anyone. Its loop refills the share ahead of time (`ShareRequest`, `Grant`) and gives back what lies idle.

Requests and permits are paid before the work, so all gateways together never exceed the account. Tokens are known only
when an answer ends: they are paid then, into debt if need be, and while there is debt nothing is admitted.

While the account cannot be asked, a gateway lends to its own share at the tenant's whole rate (`TenantShare.lend`), as if
it were the only one. What it lent is told to the account with the next request, and paid from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from turnout.errors import Limited

_LOOK_AGAIN_S = 1.0  # how long an empty account is believed to be empty: others may give something back


@dataclass(frozen=True, slots=True)
class ChatLimits:
    """Of one tenant; 0 is no limit. `concurrency` counts requests in flight and those that wait for a model."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0

    @property
    def any(self) -> bool:
        return bool(self.requests_per_minute or self.tokens_per_minute or self.concurrency)


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """What a gateway wants of an account. Negative `requests` and `tokens` are given back; `debt` are tokens that
    were used beyond those it held; `permits` is how many it wants to hold in all. `lent_…` is what it has lent to itself
    while the account could not be asked."""

    requests: int = 0
    tokens: int = 0
    debt: int = 0
    permits: int = 0
    lent_requests: int = 0
    lent_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """What a gateway got, and what the account holds now: `permits` in all, the others besides what it had."""

    requests: int = 0
    tokens: int = 0
    permits: int = 0
    left_requests: float = 0.0
    left_tokens: float = 0.0


def held_ahead(limit: int) -> int:
    """How much of a minute's limit a gateway holds ahead: what it may leave unused while others would need it."""
    return max(1, limit // 20)


def spare_permits(limit: int) -> int:
    """How many permits a gateway holds beyond those in use."""
    return max(1, limit // 16)


class TenantShare:
    """One gateway's share of one tenant's account. `enter` and `leave` are called for every request and must be
    quick; `refill_request` and `refill` are called by the loop that owns the share.

    `waiting` counts requests that could not enter and wait for a refill; `low` says that one is due. `header_lines`
    tell clients their limits in OpenAI's headers, as of the last refill.
    """

    __slots__ = (
        "_ahead",
        "_entered",
        "_entered_before",
        "_exhausted_until",
        "_lent_at",
        "_lent_requests",
        "_lent_tokens",
        "_retry_s",
        "_spare",
        "_tokens_ahead",
        "_why",
        "header_lines",
        "limits",
        "permits",
        "requests",
        "running",
        "tokens",
        "waiting",
    )

    def __init__(self, limits: ChatLimits) -> None:
        self.limits = limits
        self.requests: float = 0 if limits.requests_per_minute else inf
        self.tokens: float = 0 if limits.tokens_per_minute else inf
        self.permits: float = 0 if limits.concurrency else inf
        self.running = self.waiting = 0
        self.header_lines = b""
        self._ahead = held_ahead(limits.requests_per_minute)
        self._tokens_ahead = held_ahead(limits.tokens_per_minute)
        self._spare = spare_permits(limits.concurrency)
        self._entered = 0
        self._entered_before = 0  # as of the last refill
        self._exhausted_until = -inf
        self._lent_at = -inf  # since when what flows into the account has not been lent
        self._lent_requests = 0  # that the account has not been told of
        self._lent_tokens = 0
        self._retry_s = 1.0
        self._why = ""

    @property
    def low(self) -> bool:
        return (
            self.requests < self._ahead / 2
            or self.tokens < self._tokens_ahead / 2
            or self.permits - self.running < self._spare / 2
        )

    @property
    def unused(self) -> bool:
        """No request is in it, none came since the last refill, and there is nothing left to give back."""
        limits = self.limits
        return (
            not (self.running or self.waiting or self._lent_requests or self._lent_tokens)
            and self._entered == self._entered_before
            and not (limits.requests_per_minute and self.requests)
            and not (limits.tokens_per_minute and self.tokens)
            and not (limits.concurrency and self.permits)
        )

    def enter(self) -> bool:
        """Takes one request and a permit; False when there is not enough of something."""
        if self.requests < 1 or self.tokens <= 0 or self.running >= self.permits:
            return False
        self.requests -= 1
        self.running += 1
        self._entered += 1
        return True

    def reenter(self) -> None:
        """Takes a permit for a request that was admitted before and goes on elsewhere."""
        self.running += 1

    def leave(self, tokens: int = 0) -> None:
        self.running -= 1
        self.tokens -= tokens

    def refuse_if_exhausted(self, now: float) -> None:
        """Raises Limited when the account was just found to be empty."""
        if now < self._exhausted_until:
            raise Limited(self._why, None, "rate_limit_exceeded", self._retry_s, self.header_lines)

    def refill_request(self) -> ShareRequest:
        """What to ask the account for now. What is given back is deducted at once: if the message is lost, it is
        lost too, and the tenant never gets more than its limit."""
        idle = self._entered == self._entered_before and not self.waiting
        self._entered_before = self._entered
        limits = self.limits
        requests = tokens = debt = permits = 0
        if limits.requests_per_minute:
            requests = int((0 if idle else self._ahead + self.waiting) - self.requests)
            self.requests += min(0, requests)
        if limits.tokens_per_minute:
            debt = int(max(0, -self.tokens))
            tokens = int((0 if idle else self._tokens_ahead) - max(0, self.tokens))
            self.tokens += min(0, tokens)
        if limits.concurrency:
            wanted = self.running + self.waiting + (0 if idle else self._spare)
            permits = min(limits.concurrency, wanted)
            self.permits = min(self.permits, max(permits, self.running))
        lent_requests, lent_tokens = self._lent_requests, self._lent_tokens
        self._lent_requests = self._lent_tokens = 0
        return ShareRequest(requests, tokens, debt, permits, lent_requests, lent_tokens)

    def lend(self, now: float) -> None:
        """Fills the share while the account cannot be asked, up to what it would hold ahead: from what the account held
        when it was last asked (all, if it never was), and from what flows into it."""
        limits = self.limits
        passed_s = min(60.0, now - self._lent_at)
        self._exhausted_until = -inf
        lent_s = 0.0  # how much of the time that passed is used up
        if limits.requests_per_minute:
            per_s = limits.requests_per_minute / 60
            wanted = max(0, int(self._ahead + self.waiting - self.requests))
            lent = min(wanted, max(0, int(passed_s * per_s)))
            self.requests += lent
            self._lent_requests += lent
            lent_s = lent / per_s
            if self.requests < 1:
                self._exhausted(now, 1 / per_s, f"Over {limits.requests_per_minute} requests a minute.")
        if limits.tokens_per_minute:
            per_s = limits.tokens_per_minute / 60
            wanted = max(0, int(self._tokens_ahead - self.tokens))
            lent = min(wanted, max(0, int(passed_s * per_s)))
            self.tokens += lent
            self._lent_tokens += lent
            lent_s = max(lent_s, lent / per_s)
            if self.tokens <= 0:
                self._exhausted(now, 1.0, f"Over {limits.tokens_per_minute} tokens a minute.")
        if limits.concurrency:
            self.permits = float(limits.concurrency)
            if self.running >= self.permits:
                self._exhausted(now, 1.0, f"Over {limits.concurrency} requests at once.")
        self._lent_at = now - passed_s + lent_s

    def refill(self, request: ShareRequest, grant: Grant, now: float) -> None:
        """Takes what the account granted for `request`."""
        limits = self.limits
        self._exhausted_until = -inf
        self._lent_at = now - 60 * self._left_part(grant)
        if limits.requests_per_minute:
            self.requests += grant.requests
            if self.requests < 1 and request.requests > 0:
                per_s = limits.requests_per_minute / 60
                self._exhausted(
                    now,
                    (1 - grant.left_requests) / per_s,
                    f"Over {limits.requests_per_minute} requests a minute.",
                )
        if limits.tokens_per_minute:
            self.tokens += request.debt + grant.tokens
            if self.tokens <= 0 and request.tokens > 0:
                per_s = limits.tokens_per_minute / 60
                self._exhausted(
                    now, (1 - grant.left_tokens) / per_s, f"Over {limits.tokens_per_minute} tokens a minute."
                )
        if limits.concurrency:
            self.permits = float(grant.permits)
            # A share that looked idle asked for no spare permits: then the account is not known to be empty.
            denied = grant.permits < request.permits or request.permits >= limits.concurrency
            if denied and self.running >= self.permits:
                self._exhausted(now, 1.0, f"Over {limits.concurrency} requests at once.")
        self.header_lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in self._headers(grant))

    def _left_part(self, grant: Grant) -> float:
        """How full the account was when it was last asked, by the limit of which least was left; below 0 with debt."""
        limits, part = self.limits, 1.0
        if limits.requests_per_minute:
            part = min(part, grant.left_requests / limits.requests_per_minute)
        if limits.tokens_per_minute:
            part = min(part, grant.left_tokens / limits.tokens_per_minute)
        return part

    def _exhausted(self, now: float, wait_s: float, why: str) -> None:
        self._retry_s = max(0.05, wait_s)
        self._exhausted_until = now + min(_LOOK_AGAIN_S, self._retry_s)
        self._why = why

    def _headers(self, grant: Grant) -> Iterator[tuple[str, str]]:
        limits = self.limits
        for name, limit, here, left in (
            ("requests", limits.requests_per_minute, self.requests, grant.left_requests),
            ("tokens", limits.tokens_per_minute, self.tokens, grant.left_tokens),
        ):
            if limit:
                remaining = max(0, min(limit, int(here + left)))
                yield f"x-ratelimit-limit-{name}", str(limit)
                yield f"x-ratelimit-remaining-{name}", str(remaining)
                yield f"x-ratelimit-reset-{name}", f"{(limit - remaining) * 60 / limit:.3f}s"
