"""The files that make the service behave as in a plan: `turnout.yaml`, and values for the Helm chart."""

from typing import Any

import yaml

from turnout.fleet.model_rules import Model
from turnout.plan.modes import PlanMode, Setup
from turnout.plan.scenario import Scenario, ServiceSettings

_KEPT = ("min_replicas", "max_replicas", "idle_s")
_ASLEEP = ("sleep", "asleep_s")
_LIMIT_RUNNING = 8  # the setting's default


def turnout_yaml(scenario: Scenario, setup: Setup) -> str:
    if setup.mode is PlanMode.JOB:
        return "# Video models: `runner: job` (docs/configuration.md); each pod renders one task (`turnout rank --once`).\n"
    return _dumped({**_config(scenario, setup), "models": _models(scenario, setup)})


def helm_values(scenario: Scenario, setup: Setup) -> str:
    workers = {
        pool.name: {"replicas": pool.on if pool.on == pool.most else pool.most, "gpus": pool.kind.gpus}
        for pool in setup.pools
    }
    values = {"config": _config(scenario, setup), "models": _models(scenario, setup), "workers": workers}
    return _dumped({name: value for name, value in values.items() if value})


def _config(scenario: Scenario, setup: Setup) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if scenario.service.min_resident_s != ServiceSettings().min_resident_s:
        config["min_resident_s"] = scenario.service.min_resident_s
    gangs = sum(model.spec.scaling.max_replicas for model in setup.models.values() if model.video)
    limit = min(scenario.service.limit_running, gangs)
    if limit > _LIMIT_RUNNING:
        config["limit_running"] = limit  # of one tenant; the default would leave gangs idle
    return config


def _models(scenario: Scenario, setup: Setup) -> dict[str, Any]:
    return {
        name: {**scenario.declared.get(base, {}), **_changed(setup.models[name].spec)}
        for base, names in scenario.copies.items()
        for name in names
    }


def _changed(model: Model) -> dict[str, Any]:
    """How the model is kept."""
    names = (*_KEPT, *(_ASLEEP if model.scaling.sleep else ()))
    return {name: getattr(model.scaling, name) for name in names}


def _dumped(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, allow_unicode=True)
