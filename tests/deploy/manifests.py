"""What the chart makes of values, read, and the published schemas of Kubernetes' core types."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from deploy.render import helm_template
from kubernetes_validate import utils

TRIAL = Path(__file__).parent / "trial" / "values.yaml"
CORE = {
    "v1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
}
Objects = tuple[dict[str, Any], ...]
_valid: set[str] = set()  # most objects are the same in all cases
utils.schema_contents = cache(utils.schema_contents)  # it reads two files of some megabytes for each object


def read(text: str) -> Objects:
    """By libyaml: Python's own parser takes ten times as long."""
    return tuple(one for one in yaml.load_all(text, yaml.CSafeLoader) if one)


def rendered(*arguments: str) -> Objects:
    return read(helm_template(*arguments))


@cache
def objects(*values: str) -> Objects:
    """The trial's values, and these."""
    return rendered("-f", str(TRIAL), *(word for value in values if value for word in ("--set", value)))


def check_core_types(found: Objects) -> None:
    for one in found:
        text = json.dumps(one, default=str)
        if one["apiVersion"] in CORE and text not in _valid:
            utils.validate(one, "1.36", strict=True)
            _valid.add(text)
