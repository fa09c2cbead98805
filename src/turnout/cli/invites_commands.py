"""`turnout invites`: links by which people come in."""

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import clock_time, done, note_of_reach, one_line, table
from turnout.cli.options import Common, JsonOption, seconds, with_common
from turnout.cli.people_commands import ADay, a_day, told_a_day
from turnout.tenants.key_rules import Role

if TYPE_CHECKING:
    from turnout.people.invite_json import InviteShown

HEADINGS = ("ID", "STATE", "USED", "UNTIL", "TENANT", "ROLE", "A DAY", "NOTE")


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="Make, list and revoke links by which people come in (needs an admin key)."
    )
    group.command("create")(create)
    group.command("list")(list_invites)
    group.command("revoke")(revoke)
    app.add_typer(group, name="invites")


@with_common
def create(
    common: Common,
    uses: Annotated[int, typer.Option(help="How many people may come by it.")] = 1,
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long the link works, as in 7d.")] = "7d",
    tenant: Annotated[str, typer.Option(help="Whose work they share (default: each has her own).")] = "",
    role: Annotated[Role, typer.Option(help="user or admin.")] = Role.USER,
    videos: ADay = None,
    chats: ADay = None,
    stays: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For how long they may stay, as in 30d (default: for ever)."),
    ] = None,
    note: Annotated[str, typer.Option(help="What it is for; only admins see it.")] = "",
    person: Annotated[
        str | None, typer.Option(metavar="ID", help="Bring this person back in, on another browser.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a link by which people come in. It is shown once: only a hash of its secret is kept."""
    from turnout.cli.server_answers import read
    from turnout.people.invite_json import InviteShown

    body: dict[str, Any] = {
        "uses": uses,
        "expires_in_s": seconds(expires, "--expires"),
        "tenant": tenant,
        "role": role.value,
        "limits": {
            "videos": None if videos is None else a_day(videos, "--videos"),
            "chats": None if chats is None else a_day(chats, "--chats"),
        },
        "stays_s": None if stays is None else seconds(stays, "--stays"),
        "note": note,
        "person": person,
    }
    answer = common.call("POST", "v1", "invites", body=body)
    if as_json:
        print(json.dumps(answer))
        return
    made = read(InviteShown, answer)
    print(made.link)
    whom = "one person" if made.uses == 1 else f"{made.uses} people"
    print(
        f"This is the only time the link of {made.id} is shown. It lets in {whom}, until {clock_time(made.expires_at)}.",
        file=sys.stderr,
    )
    if reach := note_of_reach((made.link or "").partition("/#")[0], "for people at other machines"):
        print(reach, file=sys.stderr)


@with_common
def list_invites(common: Common, as_json: JsonOption = False) -> None:
    """Invites, newest first, without their secrets."""
    from turnout.cli.server_answers import read
    from turnout.people.invite_json import InviteList

    answer = common.call("GET", "v1", "invites")
    if as_json:
        print(json.dumps(answer))
        return
    found = read(InviteList, answer).data
    if not found:
        print("there are no invites", file=sys.stderr)
    else:
        print(table(HEADINGS, [_row(invite, time.time()) for invite in found]))


@with_common
def revoke(
    common: Common,
    invite: Annotated[str, typer.Argument(metavar="ID", help="From `turnout invites list`.")],
    as_json: JsonOption = False,
) -> None:
    """Revoke an invite; those who came by it stay."""
    common.call("DELETE", "v1", "invites", invite)
    print(done(as_json, f"{one_line(invite)} revoked", id=invite, deleted=True))


def _row(invite: "InviteShown", now: float) -> tuple[str, ...]:
    state = "used up" if invite.used >= invite.uses else "over" if now >= invite.expires_at else "open"
    return (
        one_line(invite.id),
        state,
        f"{invite.used} of {invite.uses}",
        clock_time(invite.expires_at),
        one_line(invite.tenant or ("-" if invite.person else "each her own")),
        invite.role,
        told_a_day(invite.limits),
        one_line(f"for {invite.person}" if invite.person else invite.note),
    )
