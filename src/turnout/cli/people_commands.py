"""`turnout people`: who may come in, and what they may ask for."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import clock_time, done, one_line, table
from turnout.cli.options import Common, JsonOption, seconds, with_common
from turnout.errors import InvalidRequest
from turnout.tenants.key_rules import Role

if TYPE_CHECKING:
    from turnout.people.person_json import DailyLimitsShown, PersonShown

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The person's id, from `turnout people list`.")]
ADay = Annotated[str | None, typer.Option(metavar="N", help="For each day (UTC); `none` for no limit.")]
HEADINGS = ("ID", "NAME", "TENANT", "ROLE", "CAME BY", "A DAY", "LAST SEEN", "STATE")


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="List, change, disable and remove people (needs an admin key). `turnout invites` lets them in.",
    )
    group.command("list")(list_people)
    group.command("set")(set_person)
    group.command("disable")(disable)
    group.command("enable")(enable)
    group.command("remove")(remove)
    app.add_typer(group, name="people")


@with_common
def list_people(
    common: Common,
    search: Annotated[str, typer.Argument(help="Part of a name, address, tenant or id.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """People, newest first."""
    from turnout.cli.server_answers import read
    from turnout.people.person_json import PersonList

    answer = common.call("GET", "v1", "people", params={"search": search or None, "limit": limit})
    if as_json:
        print(json.dumps(answer))
        return
    found = read(PersonList, answer)
    if not found.data:
        print("there is nobody; `turnout invites create` makes a link to come in by", file=sys.stderr)
        return
    print(table(HEADINGS, [_row(person) for person in found.data]))
    if found.has_more:
        print(f"there are more; name somebody, or give --limit {min(1000, limit * 10)}", file=sys.stderr)


@with_common
def set_person(
    common: Common,
    person: IdArgument,
    role: Annotated[Role | None, typer.Option(help="user or admin.")] = None,
    videos: ADay = None,
    chats: ADay = None,
    name: Annotated[str | None, typer.Option(help="What she is called.")] = None,
    email: Annotated[str | None, typer.Option(help="Where she is reached.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long she may stay, as in 30d; `never` for ever.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change a person's role, limits, name or end; it counts within seconds."""
    body: dict[str, Any] = {
        key: value for key, value in (("role", role), ("name", name), ("email", email)) if value is not None
    }
    if videos is not None or chats is not None:
        limits = dict(common.call("GET", "v1", "people", person)["limits"])
        if videos is not None:
            limits["videos"] = a_day(videos, "--videos")
        if chats is not None:
            limits["chats"] = a_day(chats, "--chats")
        body["limits"] = limits
    if expires is not None:
        body["expires_in_s"] = 0 if expires == "never" else seconds(expires, "--expires")
    if not body:
        raise InvalidRequest("say what to change: --role, --videos, --chats, --name, --email or --expires")
    _print_person(_patch(common, person, body), as_json)


@with_common
def disable(common: Common, person: IdArgument, as_json: JsonOption = False) -> None:
    """Keep a person out: her sessions, keys, streams and unfinished tasks end within seconds."""
    _print_person(_patch(common, person, {"disabled": True}), as_json)


@with_common
def enable(common: Common, person: IdArgument, as_json: JsonOption = False) -> None:
    """Let a person back in, as she was."""
    _print_person(_patch(common, person, {"disabled": False}), as_json)


@with_common
def remove(
    common: Common,
    person: IdArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a person with her tasks, videos, links, keys and sessions, for good."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove {person} and everything of hers for good?", abort=True, err=True)
    with common.client() as client:
        client.call("DELETE", "v1", "people", person, answer_s=600.0)
    print(done(as_json, f"{one_line(person)} removed", id=person, deleted=True))


def a_day(given: str, option: str) -> int | None:
    if given == "none":
        return None
    if not given.isdigit():
        raise InvalidRequest(f"{option} is a number for each day, or none; not {given}")
    return int(given)


def told_a_day(limits: "DailyLimitsShown") -> str:
    parts = [
        f"{count} {what}"
        for what, count in (("videos", limits.videos), ("chats", limits.chats))
        if count is not None
    ]
    return ", ".join(parts) or "-"


def _patch(common: Common, person: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    return common.call("PATCH", "v1", "people", person, body=body)


def _print_person(answer: Mapping[str, Any], as_json: bool) -> None:
    from turnout.cli.server_answers import read
    from turnout.people.person_json import PersonShown

    print(json.dumps(answer) if as_json else table(HEADINGS, [_row(read(PersonShown, answer))]))


def _row(person: "PersonShown") -> tuple[str, ...]:
    ends = "" if person.expires_at is None else f"until {clock_time(person.expires_at)}"
    return (
        one_line(person.id),
        one_line(person.name),
        one_line(person.tenant),
        person.role,
        person.way,
        told_a_day(person.limits),
        clock_time(person.seen_at),
        "disabled" if person.disabled else ends or "in",
    )
