"""`turnout models check`, `pull` and `convert`: weights on this machine, in the format that the engines read."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli.formatting import table
from turnout.cli.options import Common, JsonOption, size_in_bytes, with_common
from turnout.errors import InvalidRequest, Misconfigured
from turnout.extras import RENDERS

_FROM = "huggingface or modelscope."
_GIB = 1 << 30


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
    from turnout.engines.wan.model_fit import (
        family_of,
        offered_clips,
        read_model_files,
        size_of,
        usual_modes,
        usual_spec,
    )

    try:
        found = present_weights(weights, common.load().config.state_dir / "models")
        if found is None:
            raise InvalidRequest(f"{weights} is made when it is first used", "weights")
        model = read_model_files(found)
    except ValueError as err:
        raise InvalidRequest(str(err), "weights") from err
    here = [gpu.total_bytes for gpu in find_gpus().gpus]
    size = size_in_bytes(gpu_memory, "gpu-memory") if gpu_memory else min(here, default=0)
    shape, clips = model.shape, offered_clips(model.shape)
    spec = usual_spec(family_of(shape))
    modes = [
        {
            "mode": f"{mode}",
            "weight_bytes": model.weight_bytes(mode),
            "needed_bytes": {f"{clip}": model.needed_bytes(mode, clip) for clip in clips},
            "step_s_on_h200": {f"{clip}": model.step_s(mode, clip) for clip in clips},
            "clip_s_on_h200": {f"{clip}": model.clip_s(mode, clip, spec) for clip in clips},
        }
        for mode in usual_modes(shape)
    ]
    if as_json:
        about = {"kind": shape.kind, "layers": shape.layers, "experts": shape.experts}
        print(json.dumps({**about, "stored_bytes": model.stored_bytes, "gpu_bytes": size, "modes": modes}))
        return
    print(
        f"{shape.kind}: {shape.experts} experts of {shape.layers} layers, {shape.heads} heads; "
        f"{size_of(model.stored_bytes)} of files, all whole"
    )
    headings = (f"GiB ON EACH GPU; STEP AND CLIP OF {spec.steps} ON H200s", "WEIGHTS", *map(str, clips))
    print(table(headings, [_fit(mode, size) for mode in modes]))


def _fit(mode: Mapping[str, Any], gpu_bytes: int) -> tuple[str, ...]:
    """What a mode takes of each GPU, by clip; 0 bytes is a GPU that is not known."""
    cells = [
        f"{needed / _GIB:.1f}{' (too much)' if 0 < gpu_bytes < needed else ''}, {step_s:.2g} s, {clip_s:.0f} s"
        for needed, step_s, clip_s in zip(
            *(mode[figure].values() for figure in ("needed_bytes", "step_s_on_h200", "clip_s_on_h200")),
            strict=True,
        )
    ]
    return (mode["mode"], f"{mode['weight_bytes'] / _GIB:.1f}", *cells)


@with_common
def pull(
    common: Common,
    hub_id: Annotated[str, typer.Argument(metavar="HUB-ID", help="As Wan-AI/Wan2.2-TI2V-5B-Diffusers.")],
    source: Annotated[str, typer.Option("--from", help=_FROM)] = "huggingface",
    hf_endpoint: Annotated[
        str | None,
        typer.Option(envvar="HF_ENDPOINT", help="A mirror of Hugging Face, as https://hub.example."),
    ] = None,
    modelscope_endpoint: Annotated[
        str | None, typer.Option(envvar="MODELSCOPE_ENDPOINT", help="Another address of ModelScope.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="A branch, tag or commit.")] = None,
    to: Annotated[Path | None, typer.Option(help="The folder (default: in the state directory).")] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only files like this; may stand several times.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="No files like this.")] = None,
    token: Annotated[
        str | None, typer.Option(envvar="HF_TOKEN", help="For models that need one.", hidden=True)
    ] = None,
) -> None:
    """Fetch a model from a hub. Run it again to go on after a break."""
    from turnout.engines.hub import HUBS, Pull
    from turnout.engines.wan.builtin import is_hub_id, pulled

    if not is_hub_id(hub_id):
        raise InvalidRequest(
            f"{hub_id[:200]!r} is not a hub id like Wan-AI/Wan2.2-TI2V-5B-Diffusers", "hub_id"
        )
    if source not in HUBS:
        raise InvalidRequest(f"--from is {_FROM}", "from")
    folder = to or pulled(hub_id, common.load().config.state_dir / "models")
    endpoint, shown = (hf_endpoint, token) if source == "huggingface" else (modelscope_endpoint, None)
    hub = HUBS[source](hub_id, revision, endpoint)
    with _bar(f"pulling {hub_id}") as progress:
        size = Pull(hub, folder, include or (), exclude or (), shown).run(progress)
    print(f"{size / 1e9:.1f} GB in {folder}")
    if (folder / "model_index.json").exists():
        print(f"use it as: weights: {hub_id if to is None else folder}")
    else:
        print(
            f"if these are Wan's own files, bring them into diffusers' format: turnout models convert {folder}"
        )


@with_common
def convert(
    common: Common,
    original: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A model as Wan publishes it.")],
    to: Annotated[
        Path | None, typer.Option(help="The folder to make (default: DIRECTORY-diffusers).")
    ] = None,
) -> None:
    """Turn Wan's own files into diffusers' format, which the engine reads. The originals stay."""
    try:
        from turnout.engines.wan import convert as conversion
    except ImportError as err:
        raise Misconfigured(f"converting needs torch and diffusers: {RENDERS} ({err})") from err

    folder = original.expanduser().absolute()
    if not conversion.is_original(folder):
        raise InvalidRequest(
            f"{folder} does not hold Wan's own files: there is no Wan2.1_VAE or Wan2.2_VAE", "directory"
        )
    made = to or folder.with_name(f"{folder.name}-diffusers")
    with _bar(f"converting {folder.name}") as progress:
        try:
            conversion.convert(folder, made, progress)
        except (ValueError, OSError) as err:
            raise InvalidRequest(str(err), "directory") from err
    print(f"use it as: weights: {made}")


@contextmanager
def _bar(title: str) -> Generator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
