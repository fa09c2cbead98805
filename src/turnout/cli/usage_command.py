"""`turnout usage`: what was asked for, by day, tenant and model."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from turnout.cli.formatting import one_line, table
from turnout.cli.options import Common, with_common
from turnout.cli.video_view import number, whole


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
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Requests, tokens and videos by day, tenant and model; days are in UTC."""
    from turnout.cli.client import ApiClient

    asked = {"start": start and start.date().isoformat(), "end": end and end.date().isoformat()}
    params = {name: value for name, value in {**asked, "tenant": tenant}.items() if value}
    with ApiClient(common.server()) as client:
        answer = client.usage(params)
    rows: list[Mapping[str, Any]] = answer["data"]
    if as_json:
        print(json.dumps(answer))
    elif not rows:
        print(f"nothing was used from {answer.get('start')} to {answer.get('end')}", file=sys.stderr)
    else:
        print(table(HEADINGS, [_row(row) for row in rows]))


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


def _row(row: Mapping[str, Any]) -> Sequence[str]:
    return (
        *(one_line(str(row.get(name) or "")) for name in ("day", "tenant", "model")),
        *(
            str(whole(row.get(name)) or 0)
            for name in ("requests", "prompt_tokens", "completion_tokens", "videos")
        ),
        *(f"{number(row.get(name)) or 0:.1f}" for name in ("video_seconds", "render_seconds")),
    )
