"""Grafana's dashboards as code: `./dev dashboards` writes them as JSON beside this file, for Grafana's import or provisioning.

They are data here: titles, units and queries. The SDK's types check them against Grafana's schema.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, logs, loki, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FOLDER = Path(__file__).parent / "dashboards"
_METRICS = DataSourceRef(type_val="prometheus", uid="${metrics}")
_LOGS = DataSourceRef(type_val="loki", uid="${logs}")
_RATE = "[$__rate_interval]"


@dataclass(frozen=True)
class Query:
    """`legend` is Grafana's template for a series' name."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Plot:
    """`about` says how to read it."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""


@dataclass(frozen=True)
class Board:
    """`of_model`: the queries have the variable `$model`. `of_task`: it shows the log lines of `$task`."""

    uid: str
    title: str
    plots: tuple[Plot, ...]
    of_model: bool = False
    of_task: bool = False


def plot(title: str, unit: str, *queries: tuple[str, str], about: str = "") -> Plot:
    return Plot(title, unit, tuple(Query(expr, legend) for expr, legend in queries), about)


def quantiles(metric: str, by: str, chosen: str, *of: float, own: bool = True) -> tuple[tuple[str, str], ...]:
    """`own`: each gateway counts its part. Else all count the same, and one is taken."""
    rates = f"rate({metric}_bucket{{{chosen}}}{_RATE})"
    summed = (
        f"sum by (le, {by}) ({rates})" if own else f"sum by (le, {by}) (max without (instance) ({rates}))"
    )
    return tuple((f"histogram_quantile({q}, {summed})", f"{{{{{by}}}}} p{q * 100:g}") for q in of)


_OF_MODEL = 'model=~"$model"'

OVERVIEW = Board(
    "turnout-overview",
    "Turnout: overview",
    (
        plot(
            "Parts that are up",
            "none",
            ('sum(up{job="turnout"})', "gateways"),
            ("max(turnout_manager_up)", "manager"),
            ("max(turnout_redis_up)", "Redis"),
            ('max(turnout_workers{standing="alive"})', "workers"),
        ),
        plot(
            "Alerts that fire",
            "none",
            (
                'count by (alertname, severity) (ALERTS{alertstate="firing"}) or vector(0)',
                "{{alertname}} {{severity}}",
            ),
            about="docs/runbook.md has a section for each.",
        ),
        plot(
            "Who waits for what",
            "none",
            ("max by (model, state, cause) (turnout_model_state)", "{{model}}: {{state}} {{cause}}"),
            about="Each model's state, and what it waits for.",
        ),
        plot("Tasks in line, by model", "none", ("max by (model) (turnout_queue_length)", "{{model}}")),
        plot("Age of the oldest task", "s", ("max by (model) (turnout_queue_oldest_seconds)", "{{model}}")),
        plot("Chat requests that wait", "none", ("sum by (model) (turnout_chat_waiting)", "{{model}}")),
        plot(
            "Promises missed, last 5 minutes",
            "percentunit",
            ("turnout:submit:missed_ratio_5m", "submit"),
            ("turnout:first_event:missed_ratio_5m", "first event"),
            ("turnout:first_token:missed_ratio_5m", "first token"),
            ("turnout:completion:missed_ratio_5m", "completion"),
        ),
        plot(
            "Answers by status",
            "reqps",
            (f"sum by (status) (rate(turnout_http_requests_total{_RATE}))", "{{status}}"),
        ),
        plot(
            "Redis",
            "s",
            ("max(turnout_redis_ping_seconds)", "an answer takes"),
        ),
        plot(
            "Redis's memory",
            "bytes",
            ("max(turnout_redis_memory_bytes)", "held"),
            ("max(turnout_redis_memory_limit_bytes)", "limit"),
        ),
        plot(
            "CPU of gateways",
            "percentunit",
            (f'rate(process_cpu_seconds_total{{job="turnout"}}{_RATE})', "{{instance}}"),
        ),
        plot(
            "Connections",
            "none",
            ("sum by (side) (turnout_connections)", "{{side}}"),
            ("sum(turnout_event_watchers)", "watchers"),
        ),
    ),
)

VIDEO = Board(
    "turnout-video",
    "Turnout: video",
    (
        plot(
            "Time of each stage",
            "s",
            *quantiles("turnout_video_stage_seconds", "stage", _OF_MODEL, 0.5, 0.95, own=False),
        ),
        plot(
            "One denoise step",
            "s",
            *quantiles(
                "turnout_video_stage_seconds", "model", f'{_OF_MODEL},stage="step"', 0.5, 0.95, own=False
            ),
        ),
        plot(
            "Submission to end",
            "s",
            *quantiles("turnout_video_seconds", "model", _OF_MODEL, 0.5, 0.95, own=False),
        ),
        plot(
            "Took, by its estimate",
            "none",
            *quantiles("turnout_video_estimate_ratio", "model", _OF_MODEL, 0.5, 0.9, own=False),
            about="1 is what was first estimated.",
        ),
        plot("Tasks", "none", ("max by (state) (turnout_tasks)", "{{state}}")),
        plot(
            "Ended",
            "none",
            (f"max by (state) (rate(turnout_tasks_ended_total{_RATE})) * 60", "{{state}} a minute"),
        ),
        plot(
            "Line",
            "none",
            (f"max by (model) (turnout_queue_length{{{_OF_MODEL}}})", "{{model}} unfinished"),
            (f"max by (model) (turnout_queue_running{{{_OF_MODEL}}})", "{{model}} running"),
        ),
        plot(
            "Gangs", "none", (f"max by (model, state) (turnout_gangs{{{_OF_MODEL}}})", "{{model}} {{state}}")
        ),
        plot(
            "Attempts that died",
            "none",
            (f"max by (model) (increase(turnout_gang_restarts_total{{{_OF_MODEL}}}{_RATE}))", "{{model}}"),
        ),
        plot(
            "From an event to its watchers",
            "s",
            (f"histogram_quantile(0.99, sum by (le) (rate(turnout_event_lag_seconds_bucket{_RATE})))", "p99"),
        ),
        plot(
            "Webhooks",
            "none",
            (f"max by (outcome) (rate(turnout_webhook_tries_total{_RATE})) * 60", "{{outcome}} a minute"),
            ("max(turnout_webhooks_waiting)", "waiting"),
        ),
        plot(
            "Submissions",
            "reqps",
            (
                f'sum by (status) (rate(turnout_http_requests_total{{method="POST",route="/v1/videos"}}{_RATE}))',
                "{{status}}",
            ),
        ),
    ),
    of_model=True,
)

CHAT = Board(
    "turnout-chat",
    "Turnout: chat",
    (
        plot(
            "To the first token",
            "s",
            *quantiles("turnout_chat_first_byte_seconds", "model", _OF_MODEL, 0.5, 0.95, 0.99),
        ),
        plot(
            "Between two tokens",
            "s",
            *quantiles("turnout_chat_inter_token_seconds", "model", _OF_MODEL, 0.5, 0.95),
        ),
        plot("Whole answers", "s", *quantiles("turnout_chat_seconds", "model", _OF_MODEL, 0.5, 0.95)),
        plot(
            "Requests",
            "reqps",
            (
                f"sum by (model, outcome) (rate(turnout_chat_requests_total{{{_OF_MODEL}}}{_RATE}))",
                "{{model}} {{outcome}}",
            ),
        ),
        plot(
            "Tokens a second",
            "none",
            (
                f"sum by (model, kind) (rate(turnout_chat_tokens_total{{{_OF_MODEL}}}{_RATE}))",
                "{{model}} {{kind}}",
            ),
        ),
        plot(
            "In line and in flight",
            "none",
            (f"sum by (model) (turnout_chat_waiting{{{_OF_MODEL}}})", "{{model}} waiting"),
            (f"sum by (model) (turnout_chat_running{{{_OF_MODEL}}})", "{{model}} in flight"),
        ),
        plot(
            "The engines' own queues",
            "none",
            (
                f"sum by (model) (max without (instance) (turnout_engine_waiting{{{_OF_MODEL}}}))",
                "{{model}} waiting",
            ),
            (
                f"sum by (model) (max without (instance) (turnout_engine_running{{{_OF_MODEL}}}))",
                "{{model}} running",
            ),
            about="As engines tell it every ten seconds.",
        ),
        plot(
            "KV cache in use",
            "percentunit",
            (
                f"max by (worker, model, replica) (turnout_engine_kv_cache_ratio{{{_OF_MODEL}}})",
                "{{model}} {{replica}}",
            ),
            about="An engine with a full cache lets requests wait. llama.cpp does not tell.",
        ),
        plot(
            "Prompts found in the prefix cache",
            "percentunit",
            (
                (
                    f"sum by (model) (max without (instance) (rate(turnout_engine_prefix_cache_hit_tokens_total{{{_OF_MODEL}}}{_RATE})))"
                    f" / sum by (model) (max without (instance) (rate(turnout_engine_prefix_cache_tokens_total{{{_OF_MODEL}}}{_RATE})))"
                ),
                "{{model}}",
            ),
            about="Part of the prompts' tokens that need not be computed again.",
        ),
        plot("Refused", "reqps", (f"sum by (code) (rate(turnout_chat_refused_total{_RATE}))", "{{code}}")),
        plot(
            "Cold starts, by cause",
            "none",
            (
                f"max by (model, kind, cause) (increase(turnout_cold_starts_total{{{_OF_MODEL}}}[1h]))",
                "{{model}} {{kind}}: {{cause}}",
            ),
        ),
        plot(
            "Until a replica is ready",
            "s",
            (
                (
                    f"sum by (model) (max without (instance) (turnout_replica_start_seconds_sum{{{_OF_MODEL}}}))"
                    f" / sum by (model) (max without (instance) (turnout_replica_start_seconds_count{{{_OF_MODEL}}}))"
                ),
                "{{model}} mean",
            ),
        ),
        plot(
            "Evicted for another model",
            "none",
            (
                f"max by (model) (increase(turnout_evictions_total{{{_OF_MODEL}}}[1h])) or vector(0)",
                "{{model}}",
            ),
        ),
        plot(
            "Sent past the worker's proxy",
            "percentunit",
            (
                (
                    f"sum(rate(turnout_chat_direct_requests_total{{{_OF_MODEL}}}{_RATE}))"
                    f" / sum(rate(turnout_chat_requests_total{{{_OF_MODEL}}}{_RATE}))"
                ),
                "direct",
            ),
        ),
    ),
    of_model=True,
)

FLEET = Board(
    "turnout-fleet",
    "Turnout: fleet and GPUs",
    (
        plot("Workers", "none", ("max by (standing) (turnout_workers)", "{{standing}}")),
        plot("Last heard", "s", ("max by (worker) (turnout_worker_heartbeat_age_seconds)", "{{worker}}")),
        plot("Replicas", "none", ("max by (model, state) (turnout_replicas)", "{{model}} {{state}}")),
        plot(
            "At work",
            "none",
            ("max by (worker, model, replica) (turnout_replica_busy)", "{{model}} {{replica}}"),
        ),
        plot(
            "Failures of models",
            "none",
            ("max by (model) (increase(turnout_model_failures_total[1h]))", "{{model}}"),
        ),
        plot(
            "GPU use",
            "percentunit",
            ("max by (worker, gpu) (turnout_gpu_utilization_ratio)", "{{worker}} {{gpu}}"),
        ),
        plot(
            "GPU use by replica",
            "percentunit",
            ("turnout:gpu_utilization:by_replica", "{{model}} {{replica}} {{gpu}}"),
        ),
        plot(
            "GPU memory that is taken",
            "percentunit",
            (
                (
                    "1 - max by (worker, gpu) (turnout_gpu_memory_free_bytes)"
                    " / max by (worker, gpu) (turnout_gpu_memory_bytes)"
                ),
                "{{worker}} {{gpu}}",
            ),
        ),
        plot("GPU power", "watt", ("max by (worker, gpu) (turnout_gpu_power_watts)", "{{worker}} {{gpu}}")),
        plot(
            "GPU temperature",
            "celsius",
            ("max by (worker, gpu) (turnout_gpu_temperature_celsius)", "{{worker}} {{gpu}}"),
        ),
        plot(
            "GPU errors",
            "none",
            ("max by (worker, gpu) (increase(turnout_gpu_xid_errors_total[1h]))", "{{worker}} {{gpu}} Xid"),
            ("max by (worker, gpu) (increase(turnout_gpu_ecc_errors_total[1h]))", "{{worker}} {{gpu}} ECC"),
        ),
        plot(
            "Processors at work",
            "percentunit",
            (
                (
                    f"max by (worker) (rate(turnout_worker_cpu_seconds_total{_RATE}))"
                    " / max by (worker) (turnout_worker_cpus)"
                ),
                "{{worker}}",
            ),
        ),
        plot(
            "Network",
            "Bps",
            (f"max by (worker) (rate(turnout_worker_network_received_bytes_total{_RATE}))", "{{worker}} in"),
            (f"max by (worker) (rate(turnout_worker_network_sent_bytes_total{_RATE}))", "{{worker}} out"),
        ),
        plot(
            "Memory that is free",
            "bytes",
            ("max by (worker) (turnout_worker_memory_free_bytes)", "{{worker}}"),
        ),
        plot(
            "Disk that is free", "bytes", ("max by (worker) (turnout_worker_disk_free_bytes)", "{{worker}}")
        ),
    ),
)

# GPUs in a state at the moment: seconds of GPUs in a second. All gateways tell the same, and one is taken.
_GPUS = f"max without (instance) (rate(turnout_gpu_seconds_total%s{_RATE}))"
_HELD, _WORKING = _GPUS % '{state!="free"}', _GPUS % '{state="busy"}'
_UNUSED = _GPUS % '{state=~"idle|asleep|free"}'
_AN_HOUR = "sum by (%s) (%s * on (kind) group_left max by (kind) (turnout_gpu_hour_price))"
_OF_MODEL_AN_HOUR = _AN_HOUR % ("model", _HELD)
COST = Board(
    "turnout-cost",
    "Turnout: cost",
    (
        plot(
            "GPUs, by what they do",
            "none",
            ("sum by (state) (" + _GPUS % "" + ")", "{{state}}"),
            about="busy + loading + idle + asleep are held by a model; free are held by none.",
        ),
        plot("GPUs held, by model", "none", (f"sum by (model) ({_HELD})", "{{model}}")),
        plot(
            "GPUs that work, by model",
            "none",
            (f"sum by (model) ({_WORKING})", "{{model}}"),
            about="A GPU works while its replica has a request or a task.",
        ),
        plot(
            "GPUs, by worker",
            "none",
            (
                f"sum by (worker, state) (max without (instance) (rate(turnout_worker_gpu_seconds_total{_RATE})))",
                "{{worker}} {{state}}",
            ),
        ),
        plot(
            "Cost an hour, by model",
            "none",
            (_OF_MODEL_AN_HOUR, "{{model}}"),
            about="In the currency of gpu_prices; 0 without prices.",
        ),
        plot(
            "What idle GPUs cost an hour",
            "none",
            (_AN_HOUR % ("state", _UNUSED), "{{state}}"),
        ),
        plot(
            "Cost of a video",
            "none",
            (
                f"{_OF_MODEL_AN_HOUR} / (3600 * max by (model) (rate(turnout_video_seconds_count{_RATE})) > 0)",
                "{{model}}",
            ),
            about="What its model cost, idling and loading included, by the videos that ended.",
        ),
        plot(
            "Cost of a million tokens",
            "none",
            (
                f"1e6 * {_OF_MODEL_AN_HOUR} / (3600 * sum by (model) (rate(turnout_chat_tokens_total{_RATE})) > 0)",
                "{{model}}",
            ),
        ),
        plot("Power, by model", "watt", ("turnout:gpu_power_watts:by_model", "{{model}}")),
        plot("Tenants with a budget", "none", ("max by (level) (turnout_budgets)", "{{level}}")),
        plot(
            "Videos an hour",
            "none",
            (f'max(rate(turnout_tasks_ended_total{{state="completed"}}{_RATE})) * 3600', "completed"),
        ),
    ),
)

TASK = Board(
    "turnout-task",
    "Turnout: one task",
    (
        plot(
            "Steps of its model",
            "s",
            *quantiles("turnout_video_stage_seconds", "model", f'{_OF_MODEL},stage="step"', 0.5, own=False),
        ),
        plot(
            "Line of its model",
            "none",
            (f"max by (model) (turnout_queue_length{{{_OF_MODEL}}})", "{{model}}"),
        ),
        plot(
            "Gangs of its model",
            "none",
            (f"max by (model, state) (turnout_gangs{{{_OF_MODEL}}})", "{{model}} {{state}}"),
        ),
    ),
    of_model=True,
    of_task=True,
)

BOARDS = (OVERVIEW, VIDEO, CHAT, FLEET, COST, TASK)


def build(board: Board) -> str:
    """The board as Grafana imports it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .tags(["turnout"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("metrics").label("Prometheus").type("prometheus"))
    )
    if board.of_model:
        made = made.with_variable(
            dashboard.QueryVariable("model")
            .datasource(_METRICS)
            .query("label_values(turnout_model_state, model)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    if board.of_task:
        made = (
            made.with_variable(dashboard.DatasourceVariable("logs").label("Loki").type("loki"))
            .with_variable(dashboard.TextBoxVariable("task").label("Task").default_value(""))
            .with_panel(
                logs.Panel()
                .title("All lines of this task, of every process")
                .datasource(_LOGS)
                .with_target(loki.Dataquery().ref_id("A").expr('{service="turnout"} | json | task="$task"'))
                .show_time(True)
                .span(24)
                .height(14)
            )
        )
    for one in board.plots:
        made = made.with_panel(_panel(one))
    return JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"


def _panel(one: Plot) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(one.title)
        .description(one.about)
        .datasource(_METRICS)
        .unit(one.unit)
        .min(0)
        .span(12)
        .height(8)
        .legend(_legend())
    )
    for letter, query in zip("ABCDEFGH", one.queries, strict=False):
        panel = panel.with_target(
            prometheus.Dataquery().ref_id(letter).expr(query.expr).legend_format(query.legend)
        )
    return panel


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def main(words: Sequence[str] = ()) -> None:
    folder = Path(words[0]) if words else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (folder / f"{board.uid.removeprefix('turnout-')}.json").write_text(build(board))


if __name__ == "__main__":
    main(sys.argv[1:])
