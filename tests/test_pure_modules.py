"""The import-linter contract for pure modules names every module that is one by its name, or says so, and no other."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def claimed() -> set[str]:
    """Modules named `*_rules`, and those whose docstring says "Pure"."""
    found: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        says = ast.get_docstring(ast.parse(file.read_text())) or ""
        if file.stem.endswith("_rules") or re.search(r"\bPure\b", says):
            found.add(".".join(file.relative_to(ROOT / "src").with_suffix("").parts))
    return found


def checked() -> set[str]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in linter["contracts"] if c["name"].startswith("Pure modules")]
    return set(contract["source_modules"])


def test_what_claims_to_be_pure_is_checked_and_what_is_checked_says_so() -> None:
    assert checked() == claimed()


def test_what_changed_rules_are_tried_on_is_there() -> None:
    mutmut = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    for name in mutmut["pytest_add_cli_args_test_selection"]:
        file, _, test = name.partition("::")
        assert f"def {test}" in (ROOT / file).read_text(), name
