"""`turnout models`: what the service can run; register and remove what its workers serve."""

import json
import re
import shlex
import sys
from typing import Annotated, Any

import typer

from turnout.cli.formatting import field_list, one_line, table
from turnout.cli.options import Common, JsonOption, with_common
from turnout.domain.errors import InvalidRequest

ENGINES = ("vllm", "llamacpp", "wan", "command")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT]?)(I?)B)?", re.IGNORECASE | re.ASCII)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The model's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, show, register and remove models.")
    group.command("list")(list_models)
    group.command("show")(show)
    group.command("register", epilog=EPILOG)(register_model)
    group.command("rm")(remove)
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


@with_common
def register_model(
    common: Common,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="What callers name it.", show_default=False)],
    engine: Annotated[str, typer.Option(metavar="|".join(ENGINES), help="What runs it.", show_default=False)],
    model_name: Annotated[
        str, typer.Option(help="A name or a path the engine understands.", show_default=False)
    ],
    gpus: Annotated[int | None, typer.Option(help="GPUs of one replica.")] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Taken on each GPU, as in 40GiB.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Main memory of one replica, as in 2GiB.")
    ] = None,
    tensor_parallel_size: Annotated[int | None, typer.Option(help="GPUs its tensors are split over.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Longest prompt and answer, in tokens.")] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of each GPU's memory that the engine takes.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Number format of the weights.")] = None,
    quantization: Annotated[str | None, typer.Option(help="How the weights are quantized.")] = None,
    arg: Annotated[
        list[str] | None, typer.Option("--arg", help="One more engine argument; may stand several times.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(help="The command engine's command line; {port} and {weights} are filled in."),
    ] = None,
    min_replicas: Annotated[int | None, typer.Option(help="Kept, even when idle.")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Never more than these.")] = None,
    idle_s: Annotated[float | None, typer.Option(help="A replica leaves after so long without work.")] = None,
    load_timeout_s: Annotated[
        float | None, typer.Option(help="A start that takes longer has failed.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests one replica takes at once.")] = None,
    sleep: Annotated[bool, typer.Option("--sleep", help="Idle means asleep first (vLLM).")] = False,
    family: Annotated[str | None, typer.Option(help="What a wan model can make, as wan2.2-ti2v-5b.")] = None,
    ulysses: Annotated[int | None, typer.Option(help="Ranks a wan model's tokens are split over.")] = None,
    cfg: Annotated[int | None, typer.Option(help="2 runs a wan model's two branches side by side.")] = None,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="A wan model's ranks share its weights.")] = False,
    device: Annotated[str | None, typer.Option(help="Where a wan model's ranks run: cpu or cuda.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Register a model for workers to run, or change one (needs an admin key)."""
    from turnout.cli.client import ApiClient

    if engine not in ENGINES:
        raise InvalidRequest(f"engine is one of {', '.join(ENGINES)}; not {engine}", "engine")
    fields: dict[str, Any] = {
        "alias": alias,
        "engine": engine,
        "model_name": model_name,
        "gpus": gpus,
        "gpu_memory_bytes": _bytes(gpu_memory, "gpu_memory"),
        "memory_bytes": _bytes(memory, "memory"),
        "tensor_parallel_size": tensor_parallel_size,
        "max_model_len": max_model_len,
        "gpu_memory_utilization": gpu_memory_utilization,
        "dtype": dtype,
        "quantization": quantization,
        "arguments": arg or None,
        "command": _words(command),
        "min_replicas": min_replicas,
        "max_replicas": max_replicas,
        "idle_s": idle_s,
        "load_timeout_s": load_timeout_s,
        "concurrency": concurrency,
        "sleep": sleep or None,
        "family": family,
        "ulysses": ulysses,
        "cfg": cfg,
        "fsdp": fsdp or None,
        "device": device,
    }
    with ApiClient(common.server()) as client:
        made = client.register_model({name: value for name, value in fields.items() if value is not None})
    print(json.dumps(made) if as_json else f"{alias} registered")


@with_common
def remove(common: Common, name: NameArgument) -> None:
    """Remove a registered model (needs an admin key)."""
    with common.client() as client:
        client.remove_model(name)
    print(f"{name} removed")


def _bytes(size: str | None, param: str) -> int | None:
    """`40GiB`, `500MB`, or bytes alone."""
    if size is None:
        return None
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise InvalidRequest(f"{param} is a size like 40GiB or 500MB; not {size}", param)
    amount, prefix, binary = found.groups(default="")
    return int(float(amount) * (1024 if binary else 1000) ** _POWERS[prefix.upper()])


def _words(command: str | None) -> list[str] | None:
    if command is None:
        return None
    try:
        return shlex.split(command)
    except ValueError as err:
        raise InvalidRequest(f"command cannot be split into words: {err}", "command") from err
