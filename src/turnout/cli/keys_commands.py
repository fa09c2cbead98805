"""`turnout keys`: API keys, through a running server or written to its Redis."""

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from turnout.cli.formatting import clock_time, one_line, table
from turnout.cli.options import Common, JsonOption, with_common
from turnout.domain.errors import NotFound, TurnoutError
from turnout.domain.keys import Key, Role, mint
from turnout.domain.tasks import TenantId

if TYPE_CHECKING:
    from turnout.ports.keys import KeyStore

T = TypeVar("T")

DirectOption = Annotated[
    bool, typer.Option("--direct", help="Write to the configured Redis itself; needs no running server.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys (needs an admin key).")
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


@with_common
def create(
    common: Common,
    tenant: Annotated[str, typer.Option(help="Whose tasks and limits the key stands for.")] = "default",
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.USER,
    name: Annotated[str, typer.Option(help="To tell it from others.")] = "",
    direct: DirectOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a key. Its token is shown once: only a hash is kept."""
    from turnout.cli.server_answers import read
    from turnout.schemas.openai_json import KeyShown

    if direct:
        key, token = mint(
            secrets.token_hex(6), secrets.token_urlsafe(32), TenantId(tenant), role, name, time.time()
        )
        _with_store(common, lambda store: store.add(key))
        made = _shown(key, token)
    else:
        with common.client() as client:
            made = client.create_key(tenant, role.value, name)
    if as_json:
        print(json.dumps(made))
        return
    shown = read(KeyShown, made)
    if shown.token is None:
        raise TurnoutError("the server made a key but sent no token; revoke it and try again")
    print(shown.token)
    print(
        f"This is the only time the token of {shown.id} is shown. Use it with:\n"
        f"  export TURNOUT_API_KEY={shown.token[:6]}…   (the whole line above)\n"
        "or in any OpenAI client as the API key.",
        file=sys.stderr,
    )


@with_common
def list_keys(common: Common, direct: DirectOption = False, as_json: JsonOption = False) -> None:
    """All keys, without their secrets."""
    from turnout.cli.server_answers import read
    from turnout.schemas.openai_json import KeyList

    if direct:
        keys = sorted(_with_store(common, lambda store: store.all()), key=lambda key: key.created_at)
        answer: Mapping[str, Any] = {"data": [_shown(key) for key in keys]}
    else:
        with common.client() as client:
            answer = client.keys()
    if as_json:
        print(json.dumps({"data": answer.get("data")}))
        return
    rows = [
        (one_line(k.id), one_line(k.tenant), k.role, clock_time(k.created_at), one_line(k.name))
        for k in read(KeyList, answer).data
    ]
    print(table(("ID", "TENANT", "ROLE", "CREATED", "NAME"), rows))


@with_common
def revoke(
    common: Common,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `turnout keys list`.")],
    direct: DirectOption = False,
) -> None:
    """Revoke a key: it is refused from the next request on."""
    if direct:
        if not _with_store(common, lambda store: store.revoke(key_id)):
            raise NotFound(f"there is no key {key_id}")
    else:
        with common.client() as client:
            client.revoke_key(key_id)
    print(f"{key_id} revoked")


def _shown(key: Key, token: str | None = None) -> dict[str, Any]:
    from turnout.schemas.openai_json import key_of

    return key_of(key, token).model_dump(mode="json", exclude_none=True)


def _with_store(common: Common, act: "Callable[[KeyStore], Awaitable[T]]") -> T:
    from turnout.wiring.stores import open_key_store

    async def run() -> T:
        async with open_key_store(common.load().config) as store:
            return await act(store)

    return asyncio.run(run())
