"""Who asks. Whoever admits a request names its caller once; limits, streams, revocation, audit and traces are handed that."""

from dataclasses import dataclass

from turnout.errors import Forbidden, Unauthorized
from turnout.tasks.share_rules import VideoLink
from turnout.tasks.task_rules import PersonId, Task, TenantId
from turnout.tenants.allowance_rules import Allowance
from turnout.tenants.key_rules import Key, Role, is_guest, is_login, is_session
from turnout.tenants.turn_rules import Turn, turn_of


@dataclass(frozen=True, slots=True)
class Caller:
    """`id` is that of the key, the session or the login, `parent` that of what it lives with, if it is not alone:
    a key, or a person. `person` is who it is in the end. Whoever has only a `link` to one video has no role."""

    id: str
    tenant: TenantId
    role: Role | None
    name: str
    expires_at: float | None
    link: VideoLink | None = None
    parent: str | None = None
    person: PersonId | None = None
    allowances: tuple[Allowance, ...] = ()

    @property
    def root(self) -> str:
        """Whose sessions are its own: those of the person, or of the key that opened this one."""
        return self.person or self.parent or self.id

    @property
    def kept(self) -> str:
        """Under what its right is found again later: of an issuer's token nothing is stored, it goes with its person."""
        return self.person if self.person is not None and is_login(self.id) else self.id

    @property
    def guest(self) -> bool:
        """Whether nobody knows who it is. Everybody else comes first."""
        return self.person is not None and is_guest(self.person)

    @property
    def turn(self) -> Turn:
        return turn_of(self.tenant, self.person)

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def still_is(self, key: Key | None) -> bool:
        """Whether what is open under this caller may go on, if its key, or its person, is this one now."""
        return key is not None and key.tenant == self.tenant and key.role in (self.role, Role.ADMIN)


def owner_of(caller: Caller) -> str:
    """Whose conversations and presets are meant. A person's are hers alone; a key that is nobody's has them with its tenant, as it
    has its videos."""
    return person_owner(caller.person) if caller.person is not None else tenant_owner(caller.tenant)


def person_owner(person: PersonId) -> str:
    return f"person-{person}"


def tenant_owner(tenant: TenantId) -> str:
    return f"tenant-{tenant}"


def caller_with(key: Key) -> Caller:
    return Caller(
        key.id,
        key.tenant,
        key.role,
        key.name,
        key.expires_at,
        parent=key.parent,
        person=key.person,
        allowances=key.allowances,
    )


def caller_by(link: VideoLink, task: Task) -> Caller:
    return Caller(f"link-{link.share or link.issued_at}", task.tenant, None, "", link.expires_at, link)


def no_key_given() -> Unauthorized:
    return Unauthorized("Give an API key: 'Authorization: Bearer tk-…'.", code="missing_api_key")


def known(caller: Caller | None) -> Caller:
    """Raises Unauthorized where nobody was named."""
    if caller is None:
        raise no_key_given()
    return caller


def require_user(caller: Caller) -> Caller:
    """Refuses the keys of workers and of monitoring: only users and admins submit work."""
    if caller.role is not Role.USER and caller.role is not Role.ADMIN:
        raise Forbidden(f"A key of the role {caller.role} cannot be used for this.", code="role_not_allowed")
    return caller


def needs_session(caller: Caller) -> None:
    """Refuses a person's key, and a session that was opened with one: whoever has found it must not make more of them with it."""
    own = is_session(caller.id) and caller.parent == caller.person
    if caller.person is not None and not own:
        raise Forbidden("This needs a login on the page, not a key.", code="session_needed")


def refuse_persons_key(caller: Caller) -> None:
    """The same where a login of the issuer will do: it ends soon."""
    if not is_login(caller.id):
        needs_session(caller)


def refuse_guest(caller: Caller) -> None:
    """What would outlast a guest, or make the service call others, is not for guests."""
    if caller.guest:
        raise Forbidden("Guests may not do this: log in for it.", code="guest_refused")


def right_ended() -> Unauthorized:
    """What is told to whoever has something open under a key that is not valid any more."""
    return Unauthorized("The API key is no longer valid.", code="invalid_api_key")
