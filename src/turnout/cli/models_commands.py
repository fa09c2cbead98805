"""`turnout models`: what the service can run; register and remove what its workers serve."""

import json
import shlex
import sys
from dataclasses import Field
from inspect import Parameter, Signature
from typing import Annotated, Any, cast

import typer

from turnout.cli.catalogue_command import list_catalogue
from turnout.cli.formatting import done, field_list, one_line, share_of, table
from turnout.cli.options import Common, JsonOption, size_in_bytes, with_common
from turnout.cli.weights_commands import check, convert, pull
from turnout.errors import InvalidRequest
from turnout.fleet.model_declaration import DECLARED
from turnout.fleet.model_rules import EngineKind

MODELS = ("v1", "models")
ENGINES = tuple(EngineKind)
_BYTES = "_bytes"

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The model's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="List, show, register, pull, check, wake and stop models; set shares of versions.",
    )
    group.command("list")(list_models)
    group.command("show")(show)
    group.command("register", epilog=EPILOG)(with_common(register_model))
    group.command("rm")(remove)
    group.command("wake")(wake)
    group.command("stop")(stop)
    group.command("share")(share)
    group.command("check")(check)
    group.command("catalogue")(list_catalogue)
    group.command("pull")(pull)
    group.command("convert")(convert)
    app.add_typer(group, name="models")


EPILOG = """Examples:

  turnout models register smollm2 --engine llamacpp --model-name builtin:smollm2 --memory 1GiB

  turnout models register qwen --engine vllm --model-name Qwen/Qwen3-8B --gpu-memory 40GiB --arg=--enforce-eager

  turnout models register clips --engine wan --model-name /weights/wan --family wan2.2-ti2v-5b --device cuda --ulysses 4

  turnout models register mine --engine command --model-name /weights --command "my-server --port {port} {weights}"

What is not given has the server's default. Registering a known name again changes the model."""


@with_common
def list_models(common: Common, as_json: JsonOption = False) -> None:
    """Video and chat models, and how each stands."""
    from turnout.cli.server_answers import ModelSummaries, read

    answer = common.call("GET", *MODELS)
    if as_json:
        print(json.dumps({"data": answer.get("data")}))
    elif not (models := read(ModelSummaries, answer).data):
        print("no models yet; register one with: turnout models register", file=sys.stderr)
    else:
        rows = [
            (
                one_line(m.id),
                one_line(m.kind),
                one_line(m.engine),
                one_line(m.status) + share_of(m.version_of, m.share),
            )
            for m in models
        ]
        print(table(("NAME", "KIND", "ENGINE", "STATUS"), rows))


@with_common
def show(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Everything about one model."""
    model = common.call("GET", *MODELS, name)
    if as_json:
        print(json.dumps(model))
    else:
        hidden = ("object", "created", "owned_by")  # there for the dialect's sake
        print(field_list({name: value for name, value in model.items() if name not in hidden}))


def register_model(common: Common, as_json: bool = False, **given: Any) -> None:
    """Register a model for workers to run, or change one (needs an admin key)."""
    if given["engine"] not in (*ENGINES, "video"):
        raise InvalidRequest(f"engine is one of {', '.join(ENGINES)}; not {given['engine']}", "engine")
    said = {name: _value(name, given[name]) for name in DECLARED}
    made = common.call("POST", *MODELS, "register", body=said)
    print(json.dumps(made) if as_json else f"{given['alias']} registered")
    if not as_json and (notice := made.get("notice")):
        print(f"it cannot run now: {one_line(str(notice))}", file=sys.stderr)


def _option(field: Field[Any]) -> Parameter:
    """How a field of the declaration is given on the command line. What is not given is None, and not sent."""
    said = str(field.metadata["declared"]["description"])
    kind: Any = str | None
    default: Any = None
    match field.name, field.type:
        case "alias", _:
            kind, default = str, typer.Argument(..., metavar="ALIAS", help=said, show_default=False)
        case "engine", _:
            kind, default = str, typer.Option(..., metavar="|".join(ENGINES), help=said, show_default=False)
        case "model_name", _:
            kind, default = str, typer.Option(..., help=said, show_default=False)
        case "arguments", _:
            kind, default = (
                list[str] | None,
                typer.Option(None, "--arg", help="One more engine argument; may stand several times."),
            )
        case "usual_loras", _:
            kind, default = (
                list[str] | None,
                typer.Option(None, "--usual-lora", help="A name of --loras for requests that name none."),
            )
        case _, type() as declared if declared is bool:
            kind, default = bool, typer.Option(False, f"--{field.name.replace('_', '-')}", help=said)
        case name, _ if name.endswith(_BYTES):
            flag = name.removesuffix(_BYTES).replace("_", "-")
            default = typer.Option(None, f"--{flag}", metavar="SIZE", help=f"{said} As in 40GiB.")
        case "rules" | "loras", _:
            default = typer.Option(None, metavar="JSON", help=said)
        case "command", _:
            default = typer.Option(None, help=said)
        case _, declared:
            kind, default = cast(Any, declared) | None, typer.Option(None, help=said)
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _value(name: str, given: Any) -> Any:
    """The field's value as HTTP takes it; None when it was not given."""
    match name, given:
        case "vision", _:
            return given  # that it does not see is said, too
        case _, None | False | []:
            return None
        case _, str() if name.endswith(_BYTES):
            return size_in_bytes(given, name.removesuffix(_BYTES))
        case "command", str():
            return _words(given)
        case "rules" | "loras", str():
            return _object(given, name)
        case _:
            return given


def _registration() -> Signature:
    common = Parameter("common", Parameter.POSITIONAL_OR_KEYWORD, annotation=Common)
    as_json = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    return Signature([common, *map(_option, DECLARED.values()), as_json])


vars(register_model)["__signature__"] = _registration()


@with_common
def remove(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Remove a registered model (needs an admin key)."""
    common.call("DELETE", *MODELS, name)
    print(done(as_json, f"{name} removed", id=name, deleted=True))


@with_common
def wake(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Start a model now (needs an admin key). It leaves again when nobody has asked for it for its idle time."""
    model = common.call("POST", *MODELS, name, "wake")
    print(json.dumps(model) if as_json else f"{name} is waking; see: turnout models show {name}")


@with_common
def stop(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Let a model's replicas finish what they have and leave (needs an admin key). The next request wakes it again."""
    model = common.call("POST", *MODELS, name, "stop")
    print(json.dumps(model) if as_json else f"{name} leaves once it is idle")


@with_common
def share(
    common: Common,
    name: NameArgument,
    part: Annotated[
        float, typer.Argument(metavar="SHARE", min=0, max=1, help="From 0 to 1.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Set how much of what is asked of its model goes to a version (needs an admin key)."""
    model = common.call("POST", *MODELS, name, "share", body={"share": part})
    print(json.dumps(model) if as_json else f"{name} has {part:.4g} of {model.get('version_of')}")


def _object(text: str, param: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(f'{param} is a JSON object like {{"max_frames": 81}}', param)
    return cast("dict[str, Any]", value)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as err:
        raise InvalidRequest(f"command cannot be split into words: {err}", "command") from err
