"""`turnout usage`: requests, tokens and videos by day, tenant and model."""

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.formatting import one_line, table
from turnout.cli.options import Common, JsonOption, with_common

if TYPE_CHECKING:
    from turnout.schemas.usage_json import UsageShown


def register(app: typer.Typer) -> None:
    app.command("usage")(usage)


@with_common
def usage(
    common: Common,
    start: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First day (default: a week).")
    ] = None,
    end: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Last day (default: today).")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="One tenant's (with an admin's key; default: all).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Requests, tokens and videos by day, tenant and model; days are in UTC."""
    from turnout.cli.server_answers import read
    from turnout.schemas.usage_json import UsageList

    days = {name: day.date().isoformat() for name, day in (("start", start), ("end", end)) if day}
    params = {**days, "tenant": tenant} if tenant else days
    with common.client() as client:
        answer = client.usage(params)
    if as_json:
        print(json.dumps(answer))
        return
    used = read(UsageList, answer)
    if not used.data:
        print(f"nothing was used from {used.start} to {used.end}", file=sys.stderr)
    else:
        print(table(HEADINGS, [_row(row) for row in used.data]))


HEADINGS = (
    "DAY",
    "TENANT",
    "MODEL",
    "REQUESTS",
    "PROMPT TOKENS",
    "COMPLETION TOKENS",
    "VIDEOS",
    "VIDEO S",
    "RENDER S",
)


def _row(row: "UsageShown") -> tuple[str, ...]:
    return (
        row.day,
        one_line(row.tenant),
        one_line(row.model),
        str(row.requests),
        str(row.prompt_tokens),
        str(row.completion_tokens),
        str(row.videos),
        f"{row.video_seconds:.1f}",
        f"{row.render_seconds:.1f}",
    )
