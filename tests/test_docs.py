"""The documentation: no dead link, no command or option that does not exist, no setting that is refused, and a Chinese
twin of every page for users that has the same headings and code."""

import re
import shutil
import subprocess
import sys
import tomllib
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
# The hosts that somebody needs: where downloads come from unless a setting says otherwise, the charts of Kubernetes' operators, the robots
# and the register that a service may name, and names of formats that nobody calls.
HOSTS = {
    *("deb.debian.org", "download.pytorch.org", "huggingface.co", "modelscope.cn"),
    *("kedacore.github.io", "ray-project.github.io"),
    *("open.feishu.cn", "oapi.dingtalk.com", "beian.miit.gov.cn"),
    *("www.w3.org", "json-schema.org", "in-toto.io", "slsa.dev", "kubernetes.default.svc"),
}


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


def test_nothing_names_a_host_that_a_user_does_not_need() -> None:
    words = ["git", "ls-files", ":!tests", ":!benchmarks", ":!web/package-lock.json"]
    files = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {file: (ROOT / file).read_bytes() for file in files if (ROOT / file).is_file()}
    named = {
        (file, host.decode())
        for file, text in texts.items()
        if b"\0" not in text[:4096]
        for host in re.findall(rb"\b(?:https?|wss?)://([\w.-]+\.[a-z]{2,})\b", text)
    }
    strange = {(file, host) for file, host in named if not re.search(r"\bexample(\.(com|net|org))?$", host)}
    assert {(file, host) for file, host in strange if host not in HOSTS} == set()


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


MIRRORS = {
    "deploy/build-images": "deploy/build-images",
    "Dockerfile": "Dockerfile",
    "deploy/compose/.env": "deploy/compose/compose.yaml",
    "turnout models pull": "src/turnout/cli/weights_commands.py",
}


def test_settings_of_ours_that_the_page_on_mirrors_names_are_read() -> None:
    rows = re.findall(r"^\| .* \| (.*`.*) \| (.*) \|$", (DOCS / "mirrors.md").read_text(), re.MULTILINE)
    read = {
        (name, file)
        for names, reader in rows
        for of, file in MIRRORS.items()
        if of in reader
        for name in re.findall(r"`([A-Z0-9_]+)`", names)
    }
    assert len(read) == 11
    assert [(name, file) for name, file in read if name not in (ROOT / file).read_text()] == []


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


def linked(page: Path) -> set[Path]:
    """The pages of ours that a page links to."""
    links = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / link).resolve() for link in links}


@pytest.mark.parametrize(("english", "chinese"), twins(), ids=lambda p: p.name)
def test_the_chinese_page_leads_to_the_same_pages_in_chinese(english: Path, chinese: Path) -> None:
    in_chinese = {each.resolve(): other.resolve() for each, other in twins()}
    # Pages link to their own twin, too: each README to the other one.
    expected = {in_chinese.get(page, page) for page in linked(english)} - {chinese}
    assert expected - linked(chinese) == set()
    assert {page for page in linked(chinese) if page in in_chinese} - {english} == set()


def test_extras_that_are_named_are_those_of_the_page_on_installing() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "install.md").read_text(), re.MULTILINE))
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert listed <= tomllib.load(file)["project"]["optional-dependencies"].keys()
    named = {
        (page.name, extra)
        for page in PAGES
        for extras in re.findall(r"turnout\[([a-z,]+)\]", page.read_text())
        for extra in extras.split(",")
    }
    assert {(page, extra) for page, extra in named if extra not in listed} == set()


FIRST_SCREEN = ("./dev demo", "./dev test", "uvx ", "pip install ", "docker run ", "helm install ")


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_first_screen_of_the_readme_has_the_two_commands_and_the_one_line_installs(page: str) -> None:
    first = (ROOT / page).read_text().split("![")[0].splitlines()
    assert len(first) <= 40
    assert [words for words in FIRST_SCREEN if not any(line.startswith(words) for line in first)] == []


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
