"""Writes what is made from the chart and the product: the chart's README.md, values.schema.json, names.json and tiny-models.yaml, and
deploy/examples/*.yaml. `./dev chart` runs it.

python deploy/render.py            writes
python deploy/render.py --check    names what differs, and ends with 1
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from turnout.fleet.model_declaration import DECLARED
from turnout.run.config import DEFAULT_MODELS, SECTIONS

ROOT = Path(__file__).parent
CHART = ROOT / "helm" / "turnout"
HELM = Path(sys.executable).parent / "helm"

# Values that take all of `pod`, besides what is theirs.
POD_PATHS = {
    "gateway",
    "manager",
    "redis.builtin",
    "bootstrap",
    "workers.*",
    "gangs.pod",
    "gangs.models.*",
    "gangs.ray.head",
    "weights.job",
    "kserve.services.*",
    "test",
}
# Maps of names that users choose: what each has, by its defaults. None: whatever they like.
NAMED: dict[str, dict[str, Any] | None] = {
    "workers": {"replicas": 1, "gpus": 0, "engines": [], "shm": "", "state": "", "stateClass": ""},
    "gangs.models": {"pods": 1, "shm": ""},
    "kserve.services": {"storageUri": "", "replicas": 1, "nodes": 2, "gpus": 1},
    "config": None,
    "models": None,
    "weights.pull": None,
}
# What Kubernetes has names for, or users.
FREE = {
    *(
        "labels",
        "annotations",
        "env",
        "resources",
        "devices",
        "nodeSelector",
        "affinity",
        "behavior",
        "fallback",
    ),
    *("spec", "probes"),
}
CHOICES: dict[str, list[str]] = {
    "redis.mode": ["builtin", "external"],
    "blobs.mode": ["claim", "s3"],
    "gangs.mode": ["worker", "pool", "job", "ray"],
    "gangs.pool.scaler": ["keda", "none"],
    "gangs.job.by": ["launcher", "keda"],
    "gangs.job.kind": ["pytorchjob", "rayjob", "job"],
    "images.pullPolicy": ["Always", "IfNotPresent", "Never"],
    "gateway.service.type": ["ClusterIP", "NodePort", "LoadBalancer"],
}
# Values of 0.3.0, and what has become of them.
FORMER = {
    "gangs.pods": "say gangs.models.NAME.pods",
    "gangs.pool.scaleDown": "say gangs.pool.behavior.scaleDown, where all that the HPA knows may stand",
}


def defaults() -> dict[str, Any]:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def fields_of(value: dict[str, Any], path: str) -> dict[str, Any]:
    """What may stand at a path, by its defaults."""
    return {**defaults()["pod"], **value} if path in POD_PATHS else value


def schema_of(value: Any, path: str = "") -> dict[str, Any]:
    """A schema that takes what the default is like. Unknown names are refused by a template, which knows which one was meant."""
    name = path.rpartition(".")[2]
    match value:
        case None:
            return {"type": ["integer", "null"], "minimum": 0}
        case bool():
            return {"type": "boolean"}
        case _ if name == "maxUnavailable":
            return {"type": ["integer", "string"]}
        case int() if path == "gangs.pool.initialReplicas":
            return {"type": ["integer", "null"], "minimum": 0}
        case int():
            return {"type": "integer", "minimum": 0}
        case str():
            return {"type": "string", **({"enum": CHOICES[path]} if path in CHOICES else {})}
        case list():
            return {"type": "array"}
        case dict() if path in NAMED:
            named = NAMED[path]
            of = {"additionalProperties": schema_of(named, f"{path}.*")} if named is not None else {}
            return {"type": "object", **of}
        case dict() if name in FREE:
            return {"type": "object"}
        case dict():
            fields = fields_of(value, path)
            return {
                "type": "object",
                "properties": {
                    key: schema_of(one, f"{path}.{key}".lstrip(".")) for key, one in fields.items()
                },
            }
        case _:
            raise TypeError(f"{path}: {value!r}")


def schema() -> str:
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema_of(defaults())}
    return json.dumps(whole, indent=1) + "\n"


def names_of(value: Any, path: str = "") -> Any:
    """The names below a value; None: any."""
    if path == "config":
        return {**dict.fromkeys(sorted(SECTIONS)), "state_dir": None, "models": "say models beside config"}
    if path == "models":
        return {"*": dict.fromkeys(sorted({*DECLARED, "weights", "needs"}))}
    if path in NAMED:
        named = NAMED[path]
        return {"*": names_of(named, f"{path}.*")} if named is not None else None
    if not isinstance(value, dict) or path.rpartition(".")[2] in FREE:
        return None
    fields = fields_of(value, path)
    found = {key: names_of(one, f"{path}.{key}".lstrip(".")) for key, one in sorted(fields.items())}
    return found | {
        old.rpartition(".")[2]: new for old, new in FORMER.items() if old.rpartition(".")[0] == path and path
    }


def names() -> str:
    return json.dumps(names_of(defaults()), indent=1) + "\n"


def tiny_models() -> str:
    return "# Written by `./dev chart`: the models of a Turnout that was told of none.\n" + yaml.safe_dump(
        {name: dict(model) for name, model in DEFAULT_MODELS.items()}, sort_keys=False
    )


def readme() -> str:
    """A row for each value that has a text, and for each plain value."""
    rows: list[str] = []
    stack: list[tuple[int, str]] = []
    text = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if match := re.match(r" *# -- (.*)", line):
            text = match[1]
        elif match := re.match(r"( *)(\w+):(?: +(.*))?$", line):
            depth = len(match[1])
            stack = [one for one in stack if one[0] < depth] + [(depth, match[2])]
            default = re.sub(r" # .*", "", match[3] or "")
            if text or default:
                path = ".".join(name for _, name in stack)
                rows.append(f"| `{path}` | {f'`{default}`' if default else ''} | {text} |")
            text = ""
    return (
        "# The chart of Turnout\n\n"
        "`docs/kubernetes.md` says how to use it, and which mode is for whom. This file is written by `./dev chart` from\n"
        "`values.yaml`.\n\n"
        "```\nhelm install turnout deploy/helm/turnout -n turnout --create-namespace -f my-values.yaml\n"
        "helm test turnout -n turnout\n```\n\n"
        "| value | default | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def helm_template(*arguments: str) -> str:
    command = [str(HELM), "template", "turnout", str(CHART), "--namespace", "turnout", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def example(values: Path) -> str:
    """Plain manifests for kubectl: without Helm's own marks, and without blank lines."""
    lines = helm_template("-f", str(values), "--skip-tests").splitlines()
    marks = re.compile(r"\s*$|# Source:|\s*(app.kubernetes.io/managed-by|helm.sh/chart): ")
    kept = "\n".join(line for line in lines if not marks.match(line))
    first = values.read_text().splitlines()[0]
    return f"{first}\n# Written by `./dev chart` from values/{values.name}.\n{kept}\n"


def outputs() -> dict[Path, str]:
    examples = sorted((ROOT / "examples" / "values").glob("*.yaml"))
    return {
        CHART / "values.schema.json": schema(),
        CHART / "names.json": names(),
        CHART / "tiny-models.yaml": tiny_models(),
        CHART / "README.md": readme(),
        **{ROOT / "examples" / values.name: example(values) for values in examples},
    }


def main() -> None:
    if "--check" not in sys.argv:  # Helm reads these for the examples
        for name, text in (
            ("values.schema.json", schema()),
            ("names.json", names()),
            ("tiny-models.yaml", tiny_models()),
        ):
            (CHART / name).write_text(text)
    wanted = outputs()
    differing = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print(
            *(f"{path.relative_to(ROOT.parent)} is not what ./dev chart writes" for path in differing),
            sep="\n",
        )
        sys.exit(bool(differing))
    for path in differing:
        path.write_text(wanted[path])
        print(path.relative_to(ROOT.parent))


if __name__ == "__main__":
    main()
