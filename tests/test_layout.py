"""The tree stays one in which a stranger finds the way: each name once, small files, every word explained."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnout"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_METHODS = 20
MOST_PARAMETERS = 8  # outside the CLI, where an option is a parameter
MOST_FIELDS = 15

_KERNEL = "a kernel is handed pointers, strides and sizes one by one"
_SHOWN = "JSON of the API: one field for each name that clients read"
_RECORD = "a record that is stored whole"
ABOVE_THE_LIMITS = {
    "_rms_norm_silu_kernel": _KERNEL,
    "_add_norm_kernel": _KERNEL,
    "_rms_rotate_kernel": _KERNEL,
    "_measure_kernel": _KERNEL,
    "_round_kernel": _KERNEL,
    "KeyNames": "a table of names",
    "ModelAnswer": _SHOWN,
    "VideoModelShown": _SHOWN,
    "Video": _SHOWN,
    "VideoRequest": _SHOWN,
    "ImageRequest": _SHOWN,
    "Task": _RECORD,
    "Person": _RECORD,
    "Replica": _RECORD,
    "VideoSpec": _RECORD,
    "VideoRules": _RECORD,
    "TaskSettings": "a section of the configuration: one field for each setting",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def class_nodes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]


def classes(path: Path) -> list[str]:
    return [node.name for node in class_nodes(path)]


def repeated(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_each_class_name_occurs_once() -> None:
    assert repeated([name for path in SOURCES for name in classes(path)]) == []


def test_each_file_name_occurs_once() -> None:
    own = ("__init__.py", "__main__.py")  # Python's own names
    named = [path.name for path in SOURCES if path.name not in own]
    assert repeated(named) == []


def test_no_file_is_too_long() -> None:
    assert [path.name for path in SOURCES if len(path.read_text().splitlines()) > MOST_LINES] == []


def parameters(function: Function) -> list[str]:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def above_the_limits(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            too_many = len(parameters(node)) > MOST_PARAMETERS and PACKAGE / "cli" not in path.parents
            if lines > MOST_LINES_OF_A_FUNCTION or too_many:
                found.append(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, Function) for each in node.body)
            fields = sum(isinstance(each, ast.AnnAssign) for each in node.body)
            if methods > MOST_METHODS or fields > MOST_FIELDS:
                found.append(node.name)
    return found


def test_functions_and_classes_are_small() -> None:
    found = {name for path in SOURCES for name in above_the_limits(path)}
    assert found - ABOVE_THE_LIMITS.keys() == set(), "split it by idea"


def test_the_glossary_has_every_word_of_every_file_name() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text().lower()
    words = {word for path in SOURCES for word in path.stem.strip("_").split("_")}
    assert sorted(word for word in words if not re.search(rf"\b{word}", glossary)) == []


def test_everything_that_is_downloaded_has_its_hashes_locked() -> None:
    # torch is apart: its builds differ by machine.
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        entries = re.split(r"\n(?=\S)", path.read_text().strip())
        bare = [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry]
        assert bare == (["torch==2.13.0"] if path.name == "torch.txt" else []), path.name


def test_whatever_installs_compares_hashes() -> None:
    # Ours has no hash and is given by its file. uv compares the hashes of constraints.
    ours = (
        "/dist/*.whl",
        "-e .",
        "requirements/torch.txt",
        "-c requirements/dev.txt",
        "-c requirements/run.txt",
    )
    installs: list[str] = []
    for name in ("Dockerfile", "dev"):
        lines = re.sub(r"\\\n\s*", "", (ROOT / name).read_text()).splitlines()
        steps = [step for line in lines for step in line.split("&&") if "locked=" not in step]
        installs += [
            one for one in steps if re.search(r"pip install|\$\{?locked|uv build|UV build|tool run", one)
        ]
    installs = [one for one in installs if not one.lstrip().startswith("#")]
    assert len(installs) > 10
    assert [
        one for one in installs if "--require-hashes" not in one and not any(o in one for o in ours)
    ] == []
