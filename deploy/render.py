"""Writes what is made from the chart: its README and values.schema.json, and deploy/examples/*.yaml. `./dev chart` runs it.

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

ROOT = Path(__file__).parent
CHART = ROOT / "helm" / "turnout"
HELM = Path(sys.executable).parent / "helm"

# What users may fill as they like, whatever stands there by default.
FREE = {
    "annotations",
    "config",
    "devices",
    "env",
    "labels",
    "models",
    "nodeSelector",
    "pods",
    "pull",
    "resources",
}
CHOICES: dict[str, list[str]] = {
    "redis.mode": ["builtin", "external"],
    "blobs.mode": ["claim", "s3"],
    "gangs.mode": ["worker", "pool", "job", "ray"],
    "gangs.pool.scaler": ["keda", "none"],
    "gangs.job.by": ["launcher", "keda"],
    "gangs.job.kind": ["pytorchjob", "rayjob", "job"],
    "images.pullPolicy": ["Always", "IfNotPresent", "Never"],
}
WORKER_POOL: dict[str, Any] = {
    "replicas": 1,
    "image": "worker",
    "gpus": 0,
    "engines": [],
    "resources": {},
    "devices": {},
    "shm": "",
    "nodeSelector": {},
    "tolerations": [],
    "env": {},
}
KSERVE: dict[str, Any] = {"storageUri": "", "replicas": 1, "nodes": 2, "gpus": 1}


def schema_of(value: Any, path: str = "") -> dict[str, Any]:
    """A schema that takes what the default is like, and no unknown name."""
    name = path.rpartition(".")[2]
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case str():
            return {"type": "string", **({"enum": CHOICES[path]} if path in CHOICES else {})}
        case list():
            return {"type": "array"}
        case dict() if path == "workers":
            return {"type": "object", "additionalProperties": schema_of(WORKER_POOL, "workers.*")}
        case dict() if path == "kserve.services":
            return {"type": "object", "additionalProperties": schema_of(KSERVE, "kserve.services.*")}
        case dict() if name in FREE:
            return {"type": "object"}
        case dict():
            of = {key: schema_of(one, f"{path}.{key}".lstrip(".")) for key, one in value.items()}
            return {"type": "object", "properties": of, "additionalProperties": False}
        case _:
            raise TypeError(f"{path}: {value!r}")


def schema() -> str:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema_of(values)}
    whole["properties"]["global"] = {"type": "object"}  # Helm's own
    return json.dumps(whole, indent=1) + "\n"


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
        CHART / "README.md": readme(),
        **{ROOT / "examples" / values.name: example(values) for values in examples},
    }


def main() -> None:
    if "--check" not in sys.argv:
        (CHART / "values.schema.json").write_text(schema())  # Helm reads it for the examples
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
