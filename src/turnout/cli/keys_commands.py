"""`turnout keys`: API keys, through a running server or written to its Redis."""

import asyncio
import getpass
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from turnout.cli.formatting import clock_time, done, one_line, table
from turnout.cli.options import Common, JsonOption, seconds, with_common
from turnout.errors import Conflict, NotFound, TurnoutError
from turnout.tenants.audit_rules import AuditAction, AuditEntry
from turnout.tenants.key_rules import Key, Role, in_use_by, mint, rotate, tenant_of_new

if TYPE_CHECKING:
    from turnout.tenants.audit_log import AuditLog
    from turnout.tenants.key_store import KeyStore

T = TypeVar("T")

_CLIENT = "export TURNOUT_API_KEY={}\nor in any OpenAI client as the API key."
_USES = {
    Role.USER: _CLIENT,
    Role.ADMIN: _CLIENT,
    Role.WORKER: "export TURNOUT_JOIN_TOKEN={}\nand: turnout worker --join URL",
    Role.METRICS: "curl URL/metrics -H 'Authorization: Bearer {}'",
}

DirectOption = Annotated[
    bool, typer.Option("--direct", help="Write to the configured Redis itself; needs no running server.")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `turnout keys list`.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="Create, list, rotate and revoke API keys (needs an admin key)."
    )
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("rotate")(rotate_key)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


@with_common
def create(
    common: Common,
    tenant: Annotated[
        str, typer.Option(help="Whose tasks and limits the key stands for (default: a new one for a user).")
    ] = "",
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.USER,
    name: Annotated[str, typer.Option(help="To tell it from others.")] = "",
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long it works, as in 30d or 12h (default: for ever)."),
    ] = None,
    direct: DirectOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a key. Its token is shown once: only a hash is kept."""
    expires_in_s = None if expires is None else seconds(expires, "--expires")
    if direct:
        key_id = secrets.token_hex(8)
        key, token = mint(
            key_id,
            secrets.token_urlsafe(32),
            tenant_of_new(tenant, role, key_id),
            role,
            name,
            time.time(),
            expires_in_s,
        )

        async def add(store: "KeyStore", audit: "AuditLog") -> None:
            await audit.add(_entry(AuditAction.KEY_CREATED, key, role=key.role, name=name))
            await store.add(key)

        _with_store(common, add)
        made: Mapping[str, Any] = _shown(key, token)
    else:
        body = {"tenant": tenant or None, "role": role.value, "name": name, "expires_in_s": expires_in_s}
        made = common.call("POST", "v1", "keys", body=body)
    _print_made(made, as_json)


@with_common
def rotate_key(
    common: Common,
    key_id: IdArgument,
    overlap: Annotated[
        str, typer.Option(metavar="TIME", help="How long the old key works on, as in 24h; 0 ends it at once.")
    ] = "24h",
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How long the new one works (default: as long as the old one was to)."
        ),
    ] = None,
    direct: DirectOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replace a key: a new one that may do the same, while the old one still works for a time."""
    overlap_s = seconds(overlap, "--overlap")
    expires_in_s = None if expires is None else seconds(expires, "--expires")
    if direct:

        async def rotated(store: "KeyStore", audit: "AuditLog") -> Mapping[str, Any]:
            old = await store.find(key_id)
            if old is None or old.expired(time.time()):
                raise NotFound(f"there is no key {key_id}")
            new, token, ending = rotate(
                old, secrets.token_hex(8), secrets.token_urlsafe(32), time.time(), overlap_s, expires_in_s
            )
            await audit.add(_entry(AuditAction.KEY_ROTATED, old, replaced_by=new.id))
            await store.add(new, ending)
            return _shown(new, token, old.id)

        made = _with_store(common, rotated)
    else:
        body = {"overlap_s": overlap_s, "expires_in_s": expires_in_s}
        made = common.call("POST", "v1", "keys", key_id, "rotate", body=body)
    _print_made(made, as_json)


@with_common
def list_keys(common: Common, direct: DirectOption = False, as_json: JsonOption = False) -> None:
    """All keys, without their secrets."""
    from turnout.cli.server_answers import read
    from turnout.tenants.key_json import KeyList

    if direct:
        keys = sorted(_with_store(common, lambda store, _: store.all()), key=lambda key: key.created_at)
        answer: Mapping[str, Any] = {"data": [_shown(key) for key in keys]}
    else:
        answer = common.call("GET", "v1", "keys")
    if as_json:
        print(json.dumps({"data": answer.get("data")}))
        return
    rows = [
        (
            one_line(k.id),
            one_line(k.tenant),
            k.role,
            clock_time(k.created_at),
            "never" if k.expires_at is None else clock_time(k.expires_at),
            one_line(k.name),
        )
        for k in read(KeyList, answer).data
    ]
    print(table(("ID", "TENANT", "ROLE", "CREATED", "EXPIRES", "NAME"), rows))


@with_common
def revoke(
    common: Common,
    key_id: IdArgument,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Also a key that you, or `turnout up` itself, work with.")
    ] = False,
    direct: DirectOption = False,
    as_json: JsonOption = False,
) -> None:
    """Revoke a key: it is refused from the next request on."""
    try:
        _revoke(common, key_id, direct, in_use=yes)
    except Conflict as err:
        if err.code != "key_in_use":
            raise
        if not sys.stdin.isatty():
            raise Conflict(f"{err.message} Repeat with --yes if that is meant.", code=err.code) from None
        typer.confirm(f"{err.message} Revoke it all the same?", abort=True, err=True)
        _revoke(common, key_id, direct, in_use=True)
    print(done(as_json, f"{key_id} revoked", id=key_id, deleted=True))


def _revoke(common: Common, key_id: str, direct: bool, *, in_use: bool) -> None:
    if not direct:
        common.call("DELETE", "v1", "keys", key_id, params={"in_use": "true" if in_use else None})
        return

    async def end(store: "KeyStore", audit: "AuditLog") -> None:
        key = await store.find(key_id)
        if key is None:
            raise NotFound(f"there is no key {key_id}")
        cut_off = in_use_by(key, ())
        if cut_off is not None and not in_use:
            raise Conflict(cut_off, code="key_in_use")
        await audit.add(_entry(AuditAction.KEY_REVOKED, key, role=key.role))
        await store.revoke(key_id)

    _with_store(common, end)


def _print_made(made: Mapping[str, Any], as_json: bool) -> None:
    from turnout.cli.server_answers import read
    from turnout.tenants.key_json import KeyShown

    if as_json:
        print(json.dumps(made))
        return
    shown = read(KeyShown, made)
    if shown.token is None:
        raise TurnoutError("the server made a key but sent no token; revoke it and try again")
    print(shown.token)
    if shown.replaces is not None:
        print(f"{shown.id} replaces {one_line(shown.replaces)}.", file=sys.stderr)
    print(
        f"This is the only time the token of {shown.id} is shown. Use it with:\n"
        f"  {_USES[Role(shown.role)].format(f'{shown.token[:6]}…   (the whole line above)')}",
        file=sys.stderr,
    )


def _shown(key: Key, token: str | None = None, replaces: str | None = None) -> dict[str, Any]:
    from turnout.tenants.key_json import key_of

    return key_of(key, token, replaces).model_dump(mode="json", exclude_none=True)


def _entry(action: AuditAction, key: Key, **detail: str) -> AuditEntry:
    detail = {"tenant": key.tenant, **detail}
    return AuditEntry(time.time(), f"user {getpass.getuser()} by --direct", action, key.id, "", detail)


def _with_store(common: Common, act: "Callable[[KeyStore, AuditLog], Awaitable[T]]") -> T:
    from turnout.run.open_stores import open_key_store

    async def run() -> T:
        async with open_key_store(common.load().config) as store:
            return await act(*store)

    return asyncio.run(run())
