"""Settings of who may ask for what, and of what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from turnout.people.site_settings import SiteSettings
from turnout.setting_types import SECRET, Count, Limit, Price
from turnout.store.address_rules import is_safe_issuer_url
from turnout.tasks.robot_rules import called_url
from turnout.tenants.audit_rules import NoticeGroup
from turnout.tenants.budget_rules import Budget
from turnout.tenants.key_rules import Role

_MAX_NOTICE_URLS = 10


def _notice_urls(said: str) -> str:
    urls = said.split()
    # No URL stands in the message: whoever has it writes to the group.
    if len(urls) > _MAX_NOTICE_URLS:
        raise ValueError(f"more than {_MAX_NOTICE_URLS} URLs")
    if not all(called_url(url).startswith(("http://", "https://")) for url in urls):
        raise ValueError("something is no http URL; between URLs there are spaces")
    return said


def _notice_events(said: str) -> str:
    if unknown := set(said.split()) - set(NoticeGroup):
        raise ValueError(f"{', '.join(sorted(unknown))} is none of {', '.join(NoticeGroup)}")
    return said


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Whose tokens are taken beside keys, if there is an `audience`, and who logs people in on the page, if there is a
    `client_id`: by a button with the name `button`. `roles` gives the role for a value of `role_claim`; a token with none of
    them has `default_role`, and is refused if that is None."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    issuer: str
    audience: str = ""
    client_id: str | None = None
    button: str = ""
    scopes: str = "openid profile email"
    tenant_claim: str = "tenant"
    role_claim: str = "roles"
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])
    default_role: Role | None = Role.USER

    def __post_init__(self) -> None:
        if Role.WORKER in (self.default_role, *self.roles.values()):
            raise ValueError("a worker joins with a key: no login can have the role worker")
        if not self.audience and not self.client_id:
            raise ValueError(
                "give an audience, whose tokens are taken, or a client_id, to log in on the page"
            )
        if "openid" not in self.scopes.split():
            raise ValueError("scopes must have openid")
        if not is_safe_issuer_url(self.issuer):
            raise ValueError("the issuer is not an https URL (http is for this machine alone)")


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """Who may come in without an account. `videos` and `chats` are what each may ask for in a day, `address_videos` and
    `address_chats` what all from one address may together, `address_guests` how many of them may come in a day. There are `most` at
    a time. All that is a guest's is deleted when `stays_s` have passed since she came."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    videos: Limit = 3
    chats: Limit = 30
    address_videos: Limit = 9
    address_chats: Limit = 90
    address_guests: Limit = 10
    most: Count = 1000
    stays_s: Annotated[int, Field(ge=60, le=7 * 86_400)] = 86_400


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """`no_auth` needs no key on loopback; `open_key` is the token that requests then count as having, and `turnout up`
    sets it. `oidc_client_secret` is what the issuer knows the page's login by, beside PKCE. `site` is what the page says
    of whoever runs it. `notices` are URLs of webhooks or group robots that hear of `notice_events`, with spaces between them."""

    no_auth: bool = False
    open_key: str | None = field(default=None, metadata=SECRET)
    oidc: OidcSettings | None = None
    oidc_client_secret: str | None = field(default=None, metadata=SECRET)
    guests: GuestSettings | None = None
    site: SiteSettings = field(default_factory=SiteSettings)
    notices: Annotated[str, AfterValidator(_notice_urls)] = field(default="", metadata=SECRET)
    notice_events: Annotated[str, AfterValidator(_notice_events)] = "budgets people models"

    @property
    def notice_urls(self) -> tuple[str, ...]:
        return tuple(self.notices.split())

    @property
    def notice_groups(self) -> frozenset[NoticeGroup]:
        return frozenset(NoticeGroup(name) for name in self.notice_events.split())


@dataclass(frozen=True, slots=True)
class CostSettings:
    """`gpu_prices` are by kind of GPU, an hour, in `currency`; `budgets` by tenant, `*` for all others."""

    gpu_prices: Mapping[str, Price] = field(default_factory=dict[str, float])
    budgets: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    currency: Annotated[str, Field(pattern=r"^[A-Za-z]{3}$")] = "USD"
