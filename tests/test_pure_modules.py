"""The import-linter contract for pure modules names every module that says it is pure, and no other."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def claimed() -> set[str]:
    """Modules whose docstring says "Pure"."""
    found: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        if re.search(r"\bPure\b", ast.get_docstring(ast.parse(file.read_text())) or ""):
            found.add(".".join(file.relative_to(ROOT / "src").with_suffix("").parts))
    return found


def checked() -> set[str]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in linter["contracts"] if c["name"].startswith("Pure modules")]
    return set(contract["source_modules"])


def test_what_claims_to_be_pure_is_checked_and_what_is_checked_says_so() -> None:
    outside_domain = {name for name in claimed() if not name.startswith("turnout.domain.")}
    assert checked() == outside_domain | {"turnout.domain"}
