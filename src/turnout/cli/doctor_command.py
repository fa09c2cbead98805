"""`turnout doctor`: looks at the machine and the service, changes nothing, and says what to do."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from turnout.cli.options import Common, JsonOption, with_common
from turnout.errors import Misconfigured

if TYPE_CHECKING:
    from turnout.cli.doctor.finding import Finding
    from turnout.run.config import Config


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


@with_common
def doctor(common: Common, as_json: JsonOption = False) -> None:
    """Check this machine and the service. Exits with 1 when something is wrong."""
    found: list[Finding] = []
    for finding in examine(common):
        found.append(finding)
        if not as_json:
            print(finding.line, flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    if any(finding.ok is False for finding in found):
        raise typer.Exit(1)


def examine(common: Common) -> "Iterator[Finding]":
    """Everything, in the order in which one thing needs another."""
    from turnout.cli.doctor import machine_checks as machine
    from turnout.cli.doctor import model_checks as models
    from turnout.cli.doctor import service_checks as service
    from turnout.cli.doctor.finding import Finding
    from turnout.run.config import Config

    torch = machine.start_torch_probe()  # takes seconds: it runs beside the other checks
    try:
        yield machine.check_python()
        try:
            config = common.load().config
            chat = len(config.models) - len(config.video_models)
            yield Finding("config", True, f"{len(config.video_models)} video models, {chat} chat models")
        except Misconfigured as err:
            yield Finding("config", False, err.message, "mend it; `turnout config` shows the result")
            config = Config()
        yield machine.check_state_dir(config.state_dir)
        yield machine.check_disk(config.state_dir)
        yield machine.check_state_size(config)
        yield from service.check_redis(config)
        yield service.check_port(config)
        yield from service.check_blobs(config)
        yield service.check_server(common)
        yield from models.check_engines(config)
        yield from models.check_status(common)
        gpus = machine.find_gpus()
        yield machine.check_gpus(config, gpus)
        yield from models.check_video_models(config, gpus)
        yield machine.check_pinned("diffusers")
        yield machine.check_av()
        yield machine.check_torch(torch, config)
    finally:
        if torch is not None and torch.poll() is None:
            torch.kill()
            torch.wait()


def foresee(config: "Config") -> "list[Finding]":
    """What will fail later on this machine, for `turnout up` to say at its start: engines, weights, GPUs, the object store."""
    from turnout.cli.doctor import machine_checks as machine
    from turnout.cli.doctor import model_checks as models
    from turnout.cli.doctor import service_checks as service
    from turnout.worker.gpus import GpuFinding

    on_gpu = any(model.gang.device == "cuda" for model in config.video_models)
    found = [
        *models.check_engines(config),
        *models.check_video_models(config, machine.find_gpus() if on_gpu else GpuFinding()),
        *service.check_blobs(config),
    ]
    return [finding for finding in found if finding.ok is not True]
