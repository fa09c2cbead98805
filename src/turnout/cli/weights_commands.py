"""`turnout models check`, `pull` and `convert`: weights on this machine, in the format that the engines read."""

import json
import shlex
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import table
from turnout.cli.main import exit_code
from turnout.cli.options import Common, JsonOption, size_in_bytes, with_common
from turnout.errors import InvalidRequest, Misconfigured, TurnoutError
from turnout.extras import RENDERS

if TYPE_CHECKING:
    from turnout.engines.fit_verdict import FitVerdict
    from turnout.engines.hub import Hub, RemoteFile
    from turnout.engines.wan.model_fit import StoredModel

_FROM = "huggingface or modelscope."
_GIB = 1 << 30


_FromOption = Annotated[str, typer.Option("--from", help=_FROM)]
_MirrorOption = Annotated[
    str | None,
    typer.Option(envvar="HF_ENDPOINT", help="A mirror of Hugging Face, as https://hub.example."),
]
_ScopeOption = Annotated[
    str | None, typer.Option(envvar="MODELSCOPE_ENDPOINT", help="Another address of ModelScope.")
]
_TokenOption = Annotated[
    str | None, typer.Option(envvar="HF_TOKEN", help="For models that need one.", hidden=True)
]
_IncludeOption = Annotated[
    list[str] | None, typer.Option(help="Only files like this; may stand several times.")
]


@dataclass(frozen=True, slots=True)
class _HubPlace:
    """Where on which hub a model lies. Only Hugging Face is shown the token."""

    source: str
    mirror: str | None
    scope: str | None
    token: str | None
    include: tuple[str, ...]

    def hub(self, hub_id: str, revision: str | None = None) -> "Hub":
        from turnout.engines.hub import HUBS

        if self.source not in HUBS:
            raise InvalidRequest(f"--from is {_FROM}", "from")
        return HUBS[self.source](hub_id, revision, self.mirror if self._at_first else self.scope)

    @property
    def shown(self) -> str | None:
        return self.token if self._at_first else None

    @property
    def _at_first(self) -> bool:
        return self.source == "huggingface"


@with_common
def check(
    common: Common,
    weights: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY|HUB-ID",
            help="A Wan model in diffusers' format, builtin:NAME, or what lies on a hub.",
        ),
    ],
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of each GPU, as in 80GiB (default: of those here).")
    ] = None,
    source: _FromOption = "huggingface",
    hf_endpoint: _MirrorOption = None,
    modelscope_endpoint: _ScopeOption = None,
    include: _IncludeOption = None,
    token: _TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a video model's headers: whether it is whole, which GPUs hold it, at which sizes, how fast (on paper).

    Of a model that was not pulled yet they are read at the hub, and none of its weights.
    """
    place = _HubPlace(source, hf_endpoint, modelscope_endpoint, token, tuple(include or ()))
    with _errors_as_json(as_json):
        _check(weights, gpu_memory, common.load().config.state_dir / "models", place, as_json=as_json)


def _check(weights: str, gpu_memory: str | None, models: Path, place: _HubPlace, *, as_json: bool) -> None:
    from turnout.cli.doctor.machine_checks import find_gpus
    from turnout.engines.hub_verdict import chat_verdict, video_verdict

    gpus = [gpu.total_bytes for gpu in find_gpus().gpus]
    size = size_in_bytes(gpu_memory, "gpu-memory") if gpu_memory else min(gpus, default=0)
    judged_by = [size] * max(1, len(gpus)) if gpu_memory else gpus
    with _files_of(weights, models, place) as (folder, remote):
        if folder is None:
            said = chat_verdict(remote, judged_by)
            print(json.dumps(_judged(said, remote)) if as_json else said.words)
            return
        from turnout.engines.wan.model_fit import read_model_files

        try:
            model = read_model_files(folder)
        except ValueError as err:
            raise InvalidRequest(str(err), "weights") from err
    about = _judged(video_verdict(model, judged_by), remote)
    _say_fit(model, size, about if remote else None, as_json=as_json)


def _judged(said: "FitVerdict", remote: "Sequence[RemoteFile]") -> dict[str, Any]:
    download_bytes = sum(file.size for file in remote)
    parts = [asdict(part) for part in said.parts]
    return {"fits": said.fits, "words": said.words, "parts": parts, "download_bytes": download_bytes}


@contextmanager
def _errors_as_json(asked: bool) -> Generator[None]:
    """For programs, whose last line is then JSON in any case."""
    try:
        yield
    except TurnoutError as err:
        if not asked:
            raise
        print(json.dumps({"error": {"code": err.code, "message": err.message}}), flush=True)
        raise typer.Exit(exit_code(err)) from err


@contextmanager
def _files_of(
    weights: str, models: Path, place: _HubPlace
) -> "Generator[tuple[Path | None, Sequence[RemoteFile]]]":
    """The folder to read, and what of it would be pulled first; no folder for what is no Wan model."""
    from turnout.engines.wan.builtin import is_hub_id, present_weights, pulled

    here = Path(weights).expanduser().exists() or weights.startswith("builtin:")
    if here or not is_hub_id(weights) or (pulled(weights, models) / "model_index.json").exists():
        try:
            found = present_weights(weights, models)
        except ValueError as err:
            raise InvalidRequest(str(err), "weights") from err
        if found is None:
            raise InvalidRequest(f"{weights} is made when it is first used", "weights")
        yield found, ()
        return
    from turnout.engines.hub_peek import is_wan, peek

    with tempfile.TemporaryDirectory(prefix="turnout-check-") as directory:
        folder = Path(directory)
        files = peek(place.hub(weights), folder, place.include, place.shown)
        yield folder if is_wan(folder) else None, files


def _say_fit(model: "StoredModel", gpu_bytes: int, about: dict[str, Any] | None, *, as_json: bool) -> None:
    from turnout.engines.wan.model_fit import family_of, offered_clips, size_of, usual_modes, usual_spec

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
        figures = {"kind": shape.kind, "layers": shape.layers, "experts": shape.experts, **(about or {})}
        print(
            json.dumps(
                {**figures, "stored_bytes": model.stored_bytes, "gpu_bytes": gpu_bytes, "modes": modes}
            )
        )
        return
    where = "all whole" if about is None else f"{about['download_bytes'] / 1e9:.1f} GB to pull"
    print(
        f"{shape.kind}: {shape.experts} experts of {shape.layers} layers, {shape.heads} heads; "
        f"{size_of(model.stored_bytes)} of files, {where}"
    )
    headings = (f"GiB ON EACH GPU; STEP AND CLIP OF {spec.steps} ON H200s", "WEIGHTS", *map(str, clips))
    print(table(headings, [_fit(mode, gpu_bytes) for mode in modes]))


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
    hub_id: Annotated[
        str,
        typer.Argument(
            metavar="HUB-ID|NAME", help="As Wan-AI/Wan2.2-TI2V-5B-Diffusers, or a catalogue's name."
        ),
    ],
    source: _FromOption = "huggingface",
    hf_endpoint: _MirrorOption = None,
    modelscope_endpoint: _ScopeOption = None,
    revision: Annotated[str | None, typer.Option(help="A branch, tag or commit.")] = None,
    to: Annotated[Path | None, typer.Option(help="The folder (default: in the state directory).")] = None,
    include: _IncludeOption = None,
    exclude: Annotated[list[str] | None, typer.Option(help="No files like this.")] = None,
    token: _TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Progress as JSON lines, for programs.")] = False,
) -> None:
    """Fetch a model from a hub. Run it again to go on after a break."""
    from turnout.engines.hub import Pull
    from turnout.engines.wan.builtin import is_hub_id, pulled
    from turnout.fleet.catalogue import catalogue

    known = catalogue().named(hub_id)
    name, hub_id = (hub_id, known.repo) if known else (None, hub_id)
    if not is_hub_id(hub_id):
        raise InvalidRequest(
            f"{hub_id[:200]!r} is not a hub id like Wan-AI/Wan2.2-TI2V-5B-Diffusers, nor one of "
            f"{', '.join(catalogue().models)}",
            "hub_id",
        )
    wanted = tuple(include or (known.include if known else ()))
    place = _HubPlace(source, hf_endpoint, modelscope_endpoint, token, wanted)
    folder = to or pulled(hub_id, common.load().config.state_dir / "models")
    task = Pull(place.hub(hub_id, revision), folder, wanted, exclude or (), place.shown)
    if as_json:
        with _errors_as_json(True), _json_lines() as progress:
            task.run(progress)
        return
    with _bar(f"pulling {hub_id}") as progress:
        size = task.run(progress)
    print(f"{size / 1e9:.1f} GB in {folder}")
    if known and name:
        print(f"register it with: {_registering(known.declaration(name, folder))}")
    elif (folder / "model_index.json").exists():
        print(f"use it as: weights: {hub_id if to is None else folder}")
    else:
        print(
            f"if these are Wan's own files, bring them into diffusers' format: turnout models convert {folder}"
        )


def _registering(declaration: Mapping[str, Any]) -> str:
    words = ["turnout models register", shlex.quote(str(declaration["alias"]))]
    for name, value in declaration.items():
        flag = f"--{name.removesuffix('_bytes').replace('_', '-')}"
        if name != "alias":
            words.append(flag if value is True else f"{flag} {shlex.quote(str(value))}")
    return " ".join(words)


@contextmanager
def _json_lines() -> Generator[Callable[[int, int], None]]:
    """The newest figures, a line a second while they change; those of a pull that stands still are told, too."""
    newest = [(0, 0)]
    over = threading.Event()

    def tell() -> None:
        told = (0, 0)
        while True:
            ended = over.wait(1.0)
            if newest[0] != told:
                told = newest[0]
                print(json.dumps({"bytes": told[0], "of": told[1]}), flush=True)
            if ended:
                return

    def progress(done: int, total: int) -> None:
        newest[0] = (done, total)

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield progress
    finally:
        over.set()
        teller.join()


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
