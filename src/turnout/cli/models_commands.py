"""`turnout models`: what the service can run; register and remove what its workers serve."""

import json
import re
import shlex
import sys
from dataclasses import Field, fields
from inspect import Parameter, Signature
from typing import Annotated, Any, cast

import typer

from turnout.cli.formatting import done, field_list, one_line, table
from turnout.cli.options import Common, JsonOption, with_common
from turnout.cli.weights_commands import convert, pull
from turnout.errors import InvalidRequest
from turnout.fleet.model_declaration import ModelDeclaration

ENGINES = ("vllm", "llamacpp", "wan", "command")
_BYTES = "_bytes"
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT]?)(I?)B)?", re.IGNORECASE | re.ASCII)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The model's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, show, register, pull, check, wake and stop models.")
    group.command("list")(list_models)
    group.command("show")(show)
    group.command("register", epilog=EPILOG)(with_common(register_model))
    group.command("rm")(remove)
    group.command("wake")(wake)
    group.command("stop")(stop)
    group.command("check")(check)
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

    with common.client() as client:
        answer = client.models()
    if as_json:
        print(json.dumps({"data": answer.get("data")}))
    elif not (models := read(ModelSummaries, answer).data):
        print("no models yet; register one with: turnout models register", file=sys.stderr)
    else:
        rows = [(one_line(m.id), one_line(m.kind), one_line(m.engine), one_line(m.status)) for m in models]
        print(table(("NAME", "KIND", "ENGINE", "STATUS"), rows))


@with_common
def show(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Everything about one model."""
    with common.client() as client:
        model = client.model(name)
    if as_json:
        print(json.dumps(model))
    else:
        hidden = ("object", "created", "owned_by")  # there for the dialect's sake
        print(field_list({name: value for name, value in model.items() if name not in hidden}))


def register_model(common: Common, as_json: bool = False, **given: Any) -> None:
    """Register a model for workers to run, or change one (needs an admin key)."""
    if given["engine"] not in ENGINES:
        raise InvalidRequest(f"engine is one of {', '.join(ENGINES)}; not {given['engine']}", "engine")
    said = {field.name: _value(field, given[field.name]) for field in fields(ModelDeclaration)}
    with common.client() as client:
        made = client.register_model({name: value for name, value in said.items() if value is not None})
    print(json.dumps(made) if as_json else f"{given['alias']} registered")
    if not as_json and (notice := made.get("notice")):
        print(f"it cannot run now: {one_line(str(notice))}", file=sys.stderr)


def _option(field: Field[Any]) -> Parameter:
    """How a field of the declaration is given on the command line. What is not given is None, and not sent."""
    said = str(field.metadata["description"])
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


def _value(field: Field[Any], given: Any) -> Any:
    """The field's value as HTTP takes it; None when it was not given."""
    match field.name, given:
        case _, None | False | []:
            return None
        case name, str() if name.endswith(_BYTES):
            return _bytes(given, name.removesuffix(_BYTES))
        case "command", str():
            return _words(given)
        case "rules" | "loras", str():
            return _object(given, field.name)
        case _:
            return given


def _registration() -> Signature:
    common = Parameter("common", Parameter.POSITIONAL_OR_KEYWORD, annotation=Common)
    as_json = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    return Signature([common, *map(_option, fields(ModelDeclaration)), as_json])


vars(register_model)["__signature__"] = _registration()


@with_common
def remove(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Remove a registered model (needs an admin key)."""
    with common.client() as client:
        client.remove_model(name)
    print(done(as_json, f"{name} removed", id=name, deleted=True))


@with_common
def wake(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Start a model now (needs an admin key). It leaves again when nobody has asked for it for its idle time."""
    with common.client() as client:
        model = client.act_on_model(name, "wake")
    print(json.dumps(model) if as_json else f"{name} is waking; see: turnout models show {name}")


@with_common
def stop(common: Common, name: NameArgument, as_json: JsonOption = False) -> None:
    """Let a model's replicas finish what they have and leave (needs an admin key). The next request wakes it again."""
    with common.client() as client:
        model = client.act_on_model(name, "stop")
    print(json.dumps(model) if as_json else f"{name} leaves once it is idle")


@with_common
def check(
    common: Common,
    weights: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="A Wan model in diffusers' format, or builtin:NAME.")
    ],
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of each GPU, as in 80GiB (default: of those here).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a video model's headers: whether it is whole, which GPUs hold it, at which sizes, how fast (on paper)."""
    from turnout.cli.doctor.machine_checks import find_gpus
    from turnout.engines.wan.builtin import present_weights
    from turnout.engines.wan.model_fit import GIB, offered_clips, read_model_files, size_of, usual_modes

    try:
        found = present_weights(weights, common.load().config.state_dir / "models")
        if found is None:
            raise InvalidRequest(f"{weights} is made when it is first used", "weights")
        model = read_model_files(found)
    except ValueError as err:
        raise InvalidRequest(str(err), "weights") from err
    here = [gpu.total_bytes for gpu in find_gpus().gpus]
    size = _bytes(gpu_memory, "gpu-memory") if gpu_memory else min(here, default=0)
    clips = offered_clips(model.shape)
    rows = [
        (
            f"{mode}",
            model.weight_bytes(mode),
            [model.needed_bytes(mode, clip) for clip in clips],
            [model.step_s(mode, clip) for clip in clips],
        )
        for mode in usual_modes(model.shape)
    ]
    if as_json:
        modes = [
            {
                "mode": mode,
                "weight_bytes": held,
                "needed_bytes": dict(zip(map(str, clips), need, strict=True)),
                "step_s_on_h200": dict(zip(map(str, clips), steps, strict=True)),
            }
            for mode, held, need, steps in rows
        ]
        shape = {"kind": model.shape.kind, "layers": model.shape.layers, "experts": model.shape.experts}
        print(json.dumps({**shape, "stored_bytes": model.stored_bytes, "gpu_bytes": size, "modes": modes}))
        return
    s = model.shape
    print(
        f"{s.kind}: {s.experts} experts of {s.layers} layers, {s.heads} heads; "
        f"{size_of(model.stored_bytes)} of files, all whole"
    )
    marks = {True: "", False: " (too much)"}
    print(
        table(
            ("GiB ON EACH GPU, STEP ON H200s", "WEIGHTS", *(f"{clip}" for clip in clips)),
            [
                (
                    mode,
                    f"{held / GIB:.1f}",
                    *(
                        f"{each / GIB:.1f}{marks[not size or each <= size]}, {step:.2g} s"
                        for each, step in zip(need, steps, strict=True)
                    ),
                )
                for mode, held, need, steps in rows
            ],
        )
    )


def _bytes(size: str, param: str) -> int:
    """`40GiB`, `500MB`, or bytes alone."""
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise InvalidRequest(f"{param} is a size like 40GiB or 500MB; not {size}", param)
    amount, prefix, binary = found.groups(default="")
    return int(float(amount) * (1024 if binary else 1000) ** _POWERS[prefix.upper()])


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
