"""The `turnout` command: assembles the commands and turns expected errors into one line and an exit code."""

import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from turnout import __version__
from turnout.cli import (
    audit_command,
    backup_commands,
    chat_command,
    config_command,
    doctor_command,
    generate_command,
    keys_commands,
    models_commands,
    open_command,
    ray_commands,
    service_commands,
    tasks_commands,
    usage_command,
    webhooks_commands,
    workers_commands,
)
from turnout.cli.formatting import one_line
from turnout.cli.options import Common, ConfigOption, KeyOption, StateDirOption, UrlOption
from turnout.domain.errors import InvalidRequest, Misconfigured, TurnoutError, Unauthorized

EPILOG = """Examples:

  turnout up                                    the whole service, here

  turnout generate "a red balloon" -o out.mp4   a prompt in, an mp4 out

  turnout tasks watch                           all your tasks, live

  turnout doctor                                what is missing, what to do

A server elsewhere: TURNOUT_URL and TURNOUT_API_KEY, or --url and --key."""


class _Commands(TyperGroup):
    """The one place that catches errors of our own tree; any other is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TurnoutError as err:
            print(describe(err), file=sys.stderr)
            raise typer.Exit(exit_code(err)) from err
        except KeyboardInterrupt as err:
            raise typer.Exit(130) from err


def describe(err: TurnoutError) -> str:
    line = f"error: {one_line(err.message)}"
    if err.param:
        line += f" (param {one_line(err.param)})"
    if isinstance(err, Unauthorized):
        line += " Give a key with --key or TURNOUT_API_KEY; `turnout keys create` makes one."
    if err.retry_after_s is not None:
        line += f" Try again in {err.retry_after_s:.0f} s."
    return line


def exit_code(err: TurnoutError) -> int:
    """2 when the call or the configuration is wrong, 1 otherwise."""
    return 2 if isinstance(err, InvalidRequest | Misconfigured) else 1


def _version(wanted: bool) -> None:
    if wanted:
        print(f"turnout {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="turnout",
    cls=_Commands,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
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
    ctx.obj = Common(config, state_dir, url, key)


service_commands.register(app)
backup_commands.register(app)
generate_command.register(app)
tasks_commands.register(app)
chat_command.register(app)
models_commands.register(app)
workers_commands.register(app)
ray_commands.register(app)
keys_commands.register(app)
audit_command.register(app)
webhooks_commands.register(app)
usage_command.register(app)
open_command.register(app)
config_command.register(app)
doctor_command.register(app)

if __name__ == "__main__":
    app()
