"""`turnout usage`: requests, tokens, videos, GPU time and costs by day, tenant and model."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.formatting import one_line, table
from turnout.cli.options import Common, JsonOption, with_common
from turnout.tenants.gpu_time_rules import HELD, GpuState
from turnout.tenants.usage_rules import UsageBy

if TYPE_CHECKING:
    from turnout.tenants.usage_json import CostShown, UsageList, UsageShown


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
    days: Annotated[
        int | None, typer.Option(min=1, max=92, help="So many days up to the last one, in place of --start.")
    ] = None,
    by: Annotated[
        UsageBy | None, typer.Option(help="GPU time and costs, added up by model, worker or tenant.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="One tenant's (with an admin's key; default: all).")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table for spreadsheets.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Requests, tokens, videos, GPU time and costs by day, tenant and model; days are in UTC."""
    from turnout.cli.server_answers import read
    from turnout.tenants.usage_json import UsageList

    if days is not None:
        if start is not None:
            raise typer.BadParameter("give --start or --days, not both")
        start = (end or datetime.now(UTC)) - timedelta(days=days - 1)
    params = {name: day.date().isoformat() for name, day in (("start", start), ("end", end)) if day}
    if tenant:
        params["tenant"] = tenant
    answer = common.call("GET", "v1", "usage", params=params)
    if as_json:
        print(json.dumps(answer))
        return
    used = read(UsageList, answer)
    if as_csv:
        from turnout.tenants.usage_csv import usage_csv

        print(usage_csv(used, by), end="")
        return
    if by is None and used.data:
        print(table(HEADINGS, [_row(row) for row in used.data]))
    elif by is not None and (lines := _lines(used, by)):
        print(table((by.value.upper(), *COST_HEADINGS), [_cost_row(line) for line in lines]))
        reasons = [f"{one_line(line.name)}: {one_line(line.why)}" for line in lines if line.why]
        if reasons:
            print("\n" + "\n".join(reasons))
    else:
        print(f"nothing was used from {used.start} to {used.end}", file=sys.stderr)
    if used.total.gpu_seconds.held or used.total.gpu_seconds.free:
        print(f"\n{_summary(used)}")


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
    "GPU S",
    "COST",
)
COST_HEADINGS = ("GPU S", "BUSY", "LOADING", "IDLE", "ASLEEP", "FREE", "COST", "A VIDEO", "1M TOKENS")


def _row(row: "UsageShown") -> tuple[str, ...]:
    return (
        row.day,
        one_line(row.tenant) or "-",
        one_line(row.model),
        str(row.requests),
        str(row.prompt_tokens),
        str(row.completion_tokens),
        str(row.videos),
        f"{row.video_seconds:.1f}",
        f"{row.render_seconds:.1f}",
        f"{row.gpu_seconds.held:.1f}",
        f"{row.cost.held:.2f}",
    )


def _lines(used: "UsageList", by: UsageBy) -> "list[CostShown]":
    return {UsageBy.MODEL: used.models, UsageBy.WORKER: used.workers, UsageBy.TENANT: used.tenants}[by]


def _cost_row(line: "CostShown") -> tuple[str, ...]:
    seconds = line.gpu_seconds
    return (
        one_line(line.known_as or line.name) or "-",
        f"{seconds.held:.1f}",
        *(f"{getattr(seconds, state):.1f}" for state in GpuState),
        f"{line.cost.held + line.cost.free:.2f}",
        "-" if line.cost_per_video is None else f"{line.cost_per_video:.4f}",
        "-" if line.cost_per_million_tokens is None else f"{line.cost_per_million_tokens:.4f}",
    )


def _summary(used: "UsageList") -> str:
    """What idle devices cost, first of all: a machine without GPUs counts as one."""
    seconds, held = used.total.gpu_seconds, used.total.gpu_seconds.held
    split = (
        ", ".join(f"{100 * getattr(seconds, state) / held:.0f} % {state}" for state in HELD) if held else ""
    )
    said = [
        f"devices (GPUs, or machines without one) held for {held / 3600:.2f} h"
        + (f": {split}" if split else "")
    ]
    if seconds.free:
        said.append(f"devices held by no model: {seconds.free / 3600:.2f} h")
    if used.priced:
        total, currency = used.total.cost.held + used.total.cost.free, one_line(used.currency)
        said.append(f"{total:.2f} {currency} from {used.start} to {used.end}")
        said.append(f"of it for idle devices: {used.unused_cost:.2f} {currency}")
    else:
        said.append("no prices: set gpu_prices to see costs")
    return "\n".join(said)
