"""`turnout audit`: who did what to keys, models and workers."""

import json
from typing import Annotated

import typer

from turnout.cli.formatting import clock_time, one_line, table
from turnout.cli.options import Common, with_common


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


@with_common
def audit(
    common: Common,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many of the newest entries.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Entries before this one.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with the entries' ids.")
    ] = False,
) -> None:
    """The audit log, newest last (needs an admin key)."""
    from turnout.cli.server_answers import read
    from turnout.tenants.audit_json import AuditPage

    answer = common.call("GET", "v1", "audit", params={"limit": limit, "before": before})
    entries = read(AuditPage, answer).data[::-1]
    if as_json:
        for entry in entries:
            print(json.dumps(entry.model_dump(exclude={"object"}), ensure_ascii=False))
        return
    rows = [
        (
            clock_time(e.at),
            one_line(e.actor),
            one_line(e.address) or "-",
            one_line(e.action),
            one_line(e.target),
            one_line(" ".join(f"{name}={value}" for name, value in e.detail.items())),
        )
        for e in entries
    ]
    print(table(("TIME", "BY", "FROM", "ACTION", "WHAT", "DETAIL"), rows))
