"""Writes the tables of docs/metrics.md and docs/zh/metrics.md from the declared metrics. `./dev metrics` runs it.

What a metric is stands in Chinese only on the Chinese page, and stays as it is there; a new metric is told in English until
someone translates it.
"""

import re
from pathlib import Path

from turnout.telemetry.exposition import Metric
from turnout.telemetry.metric_table import METRICS

ENGLISH = Path(__file__).parent / "metrics.md"
CHINESE = Path(__file__).parent / "zh" / "metrics.md"
_ROW = re.compile(r"^\| `(turnout_\w+)` \|.*\| (.*) \|$", re.MULTILINE)


def written(page: Path) -> str:
    """The page with its table as it should be; the table is the last thing on it."""
    text = page.read_text()
    told = dict(_ROW.findall(text)) if page == CHINESE else {}
    before, mark, _ = text.partition("| --- | --- | --- | --- |\n")
    assert mark, f"{page} has no table"
    return before + mark + "".join(_row(metric, told.get(metric.name, metric.help)) for metric in METRICS)


def _row(metric: Metric, about: str) -> str:
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {about} |\n"


if __name__ == "__main__":
    for each in (ENGLISH, CHINESE):
        each.write_text(written(each))
