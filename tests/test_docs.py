"""The documentation: no dead link, no command or option that does not exist, no setting that is refused, and a Chinese
twin of every page for users that has the same headings and code."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.doc_blocks import ROOT, RUN, Block, blocks
from turnout.cli.main import MODULES, app
from turnout.run.config import load

DOCS = ROOT / "docs"
PAGES = sorted(p for p in (ROOT / "README.md", ROOT / "README.zh-CN.md", *DOCS.rglob("*.md")) if p.exists())
# For those who change Turnout, or lists of names that are English anyway.
ENGLISH_ONLY = {"glossary.md", "benchmarks.md", "clients.md"}
WORDS = {"text", "yaml", "json", "toml", "mermaid", *RUN}


BLOCKS = [block for page in PAGES for block in blocks(page)]


def headings(page: Path) -> list[int]:
    """The levels of a page's headings, in order."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [len(found[1]) for found in re.finditer(r"^(#+) ", prose, re.MULTILINE)]


def code(page: Path) -> list[str]:
    """A page's blocks without comments, which are translated."""
    return [
        "\n".join(re.sub(r"(^|\s+)#.*", "", line).rstrip() for line in block.text.splitlines()).strip()
        for block in blocks(page)
        if block.language in ("sh", "python", "yaml", "json", "toml")
    ]


def shape(page: Path) -> list[int]:
    """How many lines each table and each block of text has: a row that only one language has is a fact that it lacks."""
    tables = re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE)
    texts = [block.text for block in blocks(page) if block.language == "text"]
    return [len(lines.splitlines()) for lines in (*tables, *texts)]


def test_the_site_builds_and_no_link_is_dead(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"NO_COLOR": "1", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr[:4000]


def test_every_page_is_in_the_sites_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent == ROOT], ids=lambda p: p.name)
def test_what_the_readme_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_every_block_has_a_language_that_is_known() -> None:
    assert [str(block) for block in BLOCKS if block.language not in WORDS] == []


def test_what_can_be_run_is_run_or_says_why_not() -> None:
    # These pages' blocks are run by tests/e2e/test_video_path.py and tests/tasks/test_gang_claims.py; `text` is for what is no
    # whole command.
    run = {ROOT / "README.md", DOCS / "cost.md", DOCS / "worker-protocol.md", DOCS / "acceptance.md"}
    silent = [b for b in BLOCKS if b.language in RUN and b.reason is None and b.page not in run]
    assert [str(b) for b in silent if b.page.parent != DOCS / "zh" and b.page.name != "README.zh-CN.md"] == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=str)
def test_settings_that_are_shown_are_accepted(block: Block) -> None:
    found: Any = list(yaml.safe_load_all(block.text))
    for content in found:
        if isinstance(content, dict) and not {"apiVersion", "kind"} & set(content) and block.reason is None:
            load(dict(content), {})


def commands() -> dict[str, set[str]]:
    """Every command of the CLI with the options that it takes."""
    root: Any = typer.main.get_command(app)
    found: dict[str, set[str]] = {}

    def walk(command: Any, words: list[str], inherited: set[str]) -> None:
        own = inherited | {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        found[" ".join(words)] = own | {"--help", "-h"}
        for name, below in getattr(command, "commands", {}).items():
            walk(below, [*words, name], own)

    for name in MODULES:
        walk(root.get_command(None, name), [name], {n for p in root.params for n in p.opts})
    return found


def test_commands_and_options_that_are_shown_exist() -> None:
    known = commands()
    wrong: list[str] = []
    for block in BLOCKS:
        if block.language not in ("text", "sh"):
            continue
        unquoted = re.sub(r"\"[^\"\n]*\"", "…", re.sub(r"\\\n\s*", " ", block.text))
        for line in unquoted.splitlines():
            for call in re.findall(
                r"(?:^ *|\$\(|&& |\| |; |no-python )(?:\w+=\S* )*turnout ((?:[a-z]+ ?)+[^|;&)]*)",
                line.split("   ")[0].split(" #")[0],
            ):
                words = call.split()
                name = next((" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in known), None)
                options = set(re.findall(r"(?<![\w=-])--?[a-z][a-z0-9-]*", call.split(" -- ")[0]))
                if name is None or options - known[name]:
                    wrong.append(
                        f"{block.page.name}: turnout {call} ({sorted(options - known.get(name or '', set()))})"
                    )
    assert wrong == []


def twins() -> list[tuple[Path, Path]]:
    pages = [page for page in (*DOCS.glob("*.md"), *DOCS.glob("adr/*.md")) if page.name not in ENGLISH_ONLY]
    return [
        (ROOT / "README.md", ROOT / "README.zh-CN.md"),
        *((page, DOCS / "zh" / page.relative_to(DOCS)) for page in sorted(pages)),
    ]


@pytest.mark.parametrize(("english", "chinese"), twins(), ids=lambda p: p.name)
def test_the_chinese_page_has_the_same_headings_code_and_rows(english: Path, chinese: Path) -> None:
    assert chinese.exists(), f"{chinese.relative_to(ROOT)} is missing"
    assert headings(chinese) == headings(english)
    assert code(chinese) == code(english)
    assert shape(chinese) == shape(english)


def test_no_chinese_page_is_left_over() -> None:
    chinese = DOCS / "zh"
    assert [p for p in chinese.rglob("*.md") if not (DOCS / p.relative_to(chinese)).exists()] == []


@pytest.mark.parametrize(
    ("page", "heading"), [("security.md", "Threat model"), ("zh/security.md", "威胁模型")]
)
def test_every_line_of_the_threat_model_names_tests_that_there_are(page: str, heading: str) -> None:
    model = (DOCS / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (?!---|who |谁 ).*\|$", model, re.MULTILINE)
    assert len(lines) >= 20
    for line in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        assert named, line
        for path, test in named:
            assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE), test


def test_guarantees_are_in_alphabetical_order() -> None:
    named = re.findall(r"^\| \*\*(.*?)\*\*", (DOCS / "guarantees.md").read_text(), re.MULTILINE)
    assert named == sorted(named, key=str.lower)


def test_the_design_is_read_in_ten_minutes() -> None:
    assert len((DOCS / "architecture.md").read_text().split()) <= 2500
