"""Checks every custom resource that the chart makes against real CRDs; a field that the CRD does not know is refused.

python -m tests.deploy.custom_resources DIR      a folder with CRDs as their projects publish them
"""

import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from deploy.render import ROOT
from tests.deploy.manifests import CORE, objects, read
from tests.deploy.test_chart import CASES, TWO_PODS
from tests.fleet.test_manifests import made

from turnout.fleet.hosts.kubernetes.manifest_rules import GangTemplate, JobSpec, JobTerms, manifest

# Of projects whose CRDs everybody has: checked where they are in the folder.
OPTIONAL = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute"}


def strict(schema: Any) -> Any:
    """The schema of a CRD as one of JSON Schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {
        key: {name: strict(one) for name, one in value.items()} if key == "properties" else strict(value)
        for key, value in schema.items()
        if not key.startswith("x-kubernetes") and key not in ("format", "description", "default")
    }
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["type"] = ["integer", "string"]
    elif schema.get("nullable") and "type" in made:
        made["type"] = [made["type"], "null"]
    if "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return made


def read_crds(folder: Path) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for path in sorted(folder.glob("*.yaml")):
        for crd in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
            if not crd or crd.get("kind") != "CustomResourceDefinition":
                continue
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                schema["properties"]["metadata"] = {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                }
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = strict(schema)
    return found


def launched() -> list[dict[str, Any]]:
    """What the launcher makes of the chart's templates."""
    found: list[dict[str, Any]] = []
    for kind in ("pytorchjob", "rayjob"):
        (config,) = [
            one
            for one in objects(f"gangs.mode=job,gangs.job.kind={kind},{TWO_PODS}")
            if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", "turnout")
        ]
        jobs = yaml.safe_load(config["data"]["turnout.yaml"])["kubernetes_jobs"]
        deadline_s = jobs["deadline_s"]
        terms = JobTerms(
            jobs["launcher"], kind, jobs["gateway_url"], deadline_s, deadline_s, jobs["ttl_s"], 35
        )
        for model, gang in jobs["gangs"].items():
            found.append(manifest(terms, GangTemplate(**gang), JobSpec(model, 1, "{}")))
    return found


def main(folder: Path) -> None:
    crds = read_crds(folder)
    resources = [one for case in CASES for one in objects(*case)]
    resources += [
        made("pytorchjob", 1),
        made("pytorchjob", 2),
        made("rayjob", 1),
        made("rayjob", 2),
    ]  # the launcher's
    resources += launched()
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        resources += read(path.read_text())
    checked: dict[str, int] = {}
    problems: set[str] = set()
    for one in resources:
        kind = one["apiVersion"], one["kind"]
        if one["apiVersion"] in CORE:
            continue
        if kind not in crds:
            if one["kind"] not in OPTIONAL:
                problems.add(f"no CRD of {' '.join(kind)} in {folder}")
            continue
        checked[one["kind"]] = checked.get(one["kind"], 0) + 1
        for error in jsonschema.Draft202012Validator(crds[kind]).iter_errors(one):
            where = ".".join(map(str, error.absolute_path))
            problems.add(f"{one['kind']} {one['metadata']['name']}: {where}: {error.message[:200]}")
    print(*(f"{count} × {kind}" for kind, count in sorted(checked.items())), sep="\n")
    print(*sorted(problems), sep="\n", file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
