"""`turnout tasks dead`: records that could not be read, for admins."""

import json
import sys
from typing import Annotated

import typer

from turnout.cli.formatting import done, one_line, table
from turnout.cli.options import Common, JsonOption, with_common

DEAD = ("v1", "dead-records")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `list` shows it.")]
KindOption = Annotated[str, typer.Option("--kind", help="As `list` shows it.")]


def register(tasks: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Records that could not be read, and were set aside.")
    group.command("list")(list_dead)
    group.command("show")(show_dead)
    group.command("drop")(drop)
    group.command("retry")(retry)
    tasks.add_typer(group, name="dead")


@with_common
def list_dead(common: Common, as_json: JsonOption = False) -> None:
    """All of them: tasks, and every other kind of record."""
    answer = common.call("GET", *DEAD)
    if as_json:
        print(json.dumps(answer))
    elif not answer["data"]:
        print("every record could be read", file=sys.stderr)
    else:
        rows = [(one_line(str(row["kind"])), one_line(str(row["name"]))) for row in answer["data"]]
        print(table(("KIND", "NAME"), rows))


@with_common
def show_dead(common: Common, name: NameArgument, kind: KindOption = "task") -> None:
    """What the record holds, as it was found."""
    content = str(common.call("GET", *DEAD, kind, name)["content"])
    print("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in content))


@with_common
def drop(common: Common, name: NameArgument, kind: KindOption = "task", as_json: JsonOption = False) -> None:
    """Forget a record."""
    common.call("DELETE", *DEAD, kind, name)
    print(done(as_json, f"dropped {one_line(name)}", kind=kind, name=name, dropped=True))


@with_common
def retry(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Submit a task again for its owner, with the settings that its record holds."""
    answer = common.call("POST", *DEAD, "task", name, "retry")
    print(done(as_json, str(answer["video"]), **answer))
