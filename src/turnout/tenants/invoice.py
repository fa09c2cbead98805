"""What a tenant owes for a month, as a page to be printed. It loads nothing and runs nothing."""

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from turnout.tenants.gpu_time_rules import HELD
from turnout.tenants.usage_json import CostShown, UsageList

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:50rem;margin:3rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid #bbb}"
    "th:first-child,td:first-child{text-align:left}tfoot td{font-weight:bold;border-bottom:0}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "private, no-store",
}


def invoice_page(tenant: str, month: str, used: UsageList, prices: Iterable[tuple[str, float]]) -> str:
    """`used` has the tenant's rows of the month alone."""
    currency, total = escape(used.currency), used.total
    head = "".join(
        f"<th>{name}</th>" for name in ("Model", "Videos", "Tokens", *(f"{s} s" for s in HELD), "Cost")
    )
    rows = "".join(_row(line, currency) for line in used.models)
    listed = ", ".join(f"{escape(kind)}: {price:.2f}" for kind, price in prices) or "none"
    why = next((line.why for line in used.tenants if line.why), None)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(tenant)} {month}</title>'
        f"<style>{_STYLE}</style></head><body><h1>GPU time of {escape(tenant)}</h1>"
        f"<p>{used.start} to {used.end} (UTC)</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
        f'<tfoot><tr><td colspan="{3 + len(HELD)}">Total</td><td>{total.cost.held:.2f} {currency}</td></tr></tfoot></table>'
        f"{f'<p>Of the videos: {escape(why)}.</p>' if why else ''}"
        f"<p>Prices of a GPU-hour in {currency}: {listed}. GPU-seconds are divided as they pass among those who work on a model: "
        "loading is paid by the first who work, idling by the last who did.</p></body></html>"
    )


def _row(line: CostShown, currency: str) -> str:
    seconds = "".join(f"<td>{getattr(line.gpu_seconds, state):.1f}</td>" for state in HELD)
    counts = f"<td>{line.videos}</td><td>{line.tokens}</td>"
    return f"<tr><td>{escape(line.name)}</td>{counts}{seconds}<td>{line.cost.held:.2f} {currency}</td></tr>"
