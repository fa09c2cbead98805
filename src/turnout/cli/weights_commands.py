"""`turnout models pull` and `convert`: gets weights onto this machine, in the format that the engines read."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.options import Common, with_common
from turnout.errors import InvalidRequest, Misconfigured

_FROM = "huggingface or modelscope."


@with_common
def pull(
    common: Common,
    hub_id: Annotated[str, typer.Argument(metavar="HUB-ID", help="As Wan-AI/Wan2.2-TI2V-5B-Diffusers.")],
    source: Annotated[str, typer.Option("--from", help=_FROM)] = "huggingface",
    hf_endpoint: Annotated[
        str | None,
        typer.Option(envvar="HF_ENDPOINT", help="A mirror of Hugging Face, as https://hf-mirror.com."),
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
        raise Misconfigured(
            f"converting needs torch and diffusers: pip install 'turnout[wan]' ({err})"
        ) from err

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
