"""`turnout config`: every setting, its value, and where it came from."""

import json
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import typer

from turnout.cli.formatting import one_line, table
from turnout.cli.options import Common, JsonOption, with_config

if TYPE_CHECKING:
    from turnout.fleet.model_rules import Model
    from turnout.run.config import Loaded


def register(app: typer.Typer) -> None:
    app.command("config")(show_config)


@with_config
def show_config(common: Common, as_json: JsonOption = False) -> None:
    """Show every setting and where it came from (a later source wins: default, file, TURNOUT_*, flag)."""
    loaded = common.load()
    if as_json:
        print(json.dumps(shown_settings(loaded), indent=2))
        return
    shown = _shown(loaded)
    models = loaded.config.models
    rows = [(name, "–" if v is None else one_line(str(v)), loaded.origins[name]) for name, v in shown.items()]
    rows += [(f"models.{m.name}", f"{m.weights} on {_on(m)}", loaded.origins["models"]) for m in models]
    print(table(("SETTING", "VALUE", "FROM"), rows))


def shown_settings(loaded: "Loaded") -> dict[str, Any]:
    """Every setting as plain data, with its origin; secrets are masked."""
    shown = _shown(loaded) | {"models": loaded.config.models}
    return {name: {"value": _plain(v), "origin": loaded.origins[name]} for name, v in shown.items()}


def _shown(loaded: "Loaded") -> dict[str, Any]:
    from turnout.run.config import SECRETS, settings_of
    from turnout.tasks.robot_rules import shown_url

    settings = settings_of(loaded.config)
    settings["budgets"] = {
        tenant: replace(budget, webhook=shown_url(budget.webhook))
        for tenant, budget in loaded.config.costs.budgets.items()
    }
    return {name: masked(value) if name in SECRETS else value for name, value in settings.items()}


def masked(secret: str | None) -> str | None:
    """A secret as it may be shown: of a URL the password alone is hidden, of anything else all."""
    if not secret:
        return secret
    try:
        parts = urlsplit(secret)
    except ValueError:
        return "•••"
    # The URL of a group robot is a secret as a whole.
    if "://" not in secret or parts.query or parts.fragment or parts.scheme.endswith(("http", "https")):
        return "•••"
    user, at, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}:•••@{place}").geturl() if at else secret


def _on(model: "Model") -> str:
    if model.video is None:
        return model.engine
    return "1 rank" if model.video.ranks == 1 else f"{model.video.ranks} ranks"


def _plain(value: object) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value
