"""The tree stays one in which a stranger finds the way: each name once, small files, every word explained."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnout"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 400


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
