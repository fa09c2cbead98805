"""The `turnout` command: assembles the commands and turns expected errors into one line and an exit code."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from turnout import __version__
from turnout.cli.formatting import duration, one_line
from turnout.cli.options import CaOption, Common, ConfigOption, KeyOption, StateDirOption, UrlOption
from turnout.errors import InvalidRequest, Misconfigured, TurnoutError, first_in

EPILOG = """Examples:

  turnout up                                    the whole service, here

  turnout generate "a red balloon" -o out.mp4   a prompt in, an mp4 out

  turnout tasks watch                           all your tasks, live

  turnout doctor                                what is missing, what to do

A server elsewhere: TURNOUT_URL and TURNOUT_API_KEY, or --url and --key."""


# Every command by the heading it has in `turnout --help`: the module that registers it, and its line there.
COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Ask for something": {
        "generate": ("generate_command", "Render a prompt to an mp4."),
        "render": ("render_command", "Render a file of prompts, and end."),
        "chat": ("chat_command", "Ask a chat model; the answer appears as it is made."),
        "tasks": ("tasks_commands", "List, show, watch, download, cancel, remix and delete tasks."),
        "models": ("models_commands", "List, show, register, remove, wake and stop models."),
        "usage": ("usage_command", "Requests, tokens, videos, GPU time and costs."),
        "open": ("open_command", "Open the page, logged in."),
    },
    "Run the service": {
        "up": ("up_command", "Run the whole service on this machine."),
        "status": ("local_commands", "How the service stands, on one screen."),
        "logs": ("logs_command", "What its parts have written; of one task, in order."),
        "down": ("local_commands", "Drain and stop what `turnout up` runs here."),
        "doctor": ("doctor_command", "Check this machine and the service; say what to do."),
        "diagnose": ("diagnose_command", "Pack what a maintainer would ask for, without secrets."),
        "plan": ("plan_command", "What a scenario would cost in each mode, by simulation."),
        "config": ("config_command", "Show every setting and where it came from."),
        "worker": ("worker_command", "Run models on this machine for a gateway elsewhere."),
        "gateway": ("service_commands", "Run one gateway; any number may share a Redis."),
        "manager": ("service_commands", "Run one manager; a second one stands by."),
        "ray": ("ray_commands", "Turnout on a Ray cluster."),
        "rank": ("gang_commands", "Run a gang's ranks under torchrun or in a pod."),
        "redis": ("service_commands", "Run the embedded Valkey alone."),
    },
    "Operate it (admin keys)": {
        "workers": ("workers_commands", "List, drain and evict workers."),
        "people": ("people_commands", "List, change, disable and remove people."),
        "invites": ("invites_commands", "Links by which people come in."),
        "keys": ("keys_commands", "Create, list, rotate and revoke API keys."),
        "budgets": ("budget_commands", "What tenants may spend in a month."),
        "webhooks": ("webhooks_commands", "The secret that signs your webhooks."),
        "audit": ("audit_command", "Who did what to keys, models and workers."),
        "backup": ("backup_commands", "Copy what matters from Redis into a file."),
        "restore": ("backup_commands", "Bring back what `turnout backup` has copied."),
    },
}
HIDDEN = {  # started by programs
    "gang": "gang_commands",
    "open-gang": "gang_commands",
    "bootstrap": "bootstrap_command",
}
MODULES = {name: module for group in COMMANDS.values() for name, (module, _) in group.items()} | HIDDEN


class _Commands(TyperGroup):
    """Imports a command's module when the command is used, so that `--help` and each command load only what they need.

    The one place that catches errors of our own tree; any other is a bug and keeps its traceback.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in MODULES:
            return None
        of_module = typer.Typer(callback=root, rich_markup_mode=None)
        import_module(f"turnout.cli.{MODULES[cmd_name]}").register(of_module)
        return get_group(of_module).commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in MODULES and (close := get_close_matches(args[0], MODULES, 1)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, MODULES))
        for heading, group in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in group.items()])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (TurnoutError, BaseExceptionGroup) as raised:
            err = first_in(raised)
            defect = isinstance(raised, BaseExceptionGroup) and raised.split(TurnoutError)[1] is not None
            if defect or not isinstance(err, TurnoutError):
                raise
            print(describe(err), file=sys.stderr)
            raise typer.Exit(exit_code(err)) from err
        except KeyboardInterrupt as err:
            raise typer.Exit(130) from err


def describe(err: TurnoutError) -> str:
    line = f"error: {one_line(err.message)}"
    if err.param:
        line += f" (param {one_line(err.param)})"
    if err.retry_after_s is not None:
        line += f" Try again in {duration(err.retry_after_s)}."
    return line


def exit_code(err: TurnoutError) -> int:
    """2 when the call or the configuration is wrong, 1 otherwise."""
    return 2 if isinstance(err, InvalidRequest | Misconfigured) or err.code == "model_not_found" else 1


def _version(wanted: bool) -> None:
    if wanted:
        print(f"turnout {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="turnout",
    cls=_Commands,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, keys among them
    rich_markup_mode=None,  # plain help: a third of the start-up time
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback()
def root(
    ctx: typer.Context,
    url: UrlOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    ca_file: CaOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Serve generative models on your own GPUs: awake when asked, gone when idle."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a locale that lacks our characters shows question marks, not a traceback
    ctx.obj = Common(config, state_dir, url, key, ca_file)
