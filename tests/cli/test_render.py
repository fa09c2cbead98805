"""`turnout render`: lines in, videos and results out, and a second run that goes on where the first was."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.scripted import MP4, ScriptedGateway


def test_each_line_becomes_a_video_and_a_result(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(
        '{"prompt": "a boat", "id": "boat", "seed": 7}\n\n{"prompt": "a tree"}\n'
    )
    for run in range(2):
        done = cli("render", "p.jsonl", "-o", "videos", "--model", "m", "--parallel", "1")
        assert done.code == 0, done.err
        results = [json.loads(line) for line in done.out.splitlines()]
        assert [(r["id"], r["status"], r["path"]) for r in results] == [
            ("boat", "completed", "videos/boat.mp4"),
            ("3", "completed", "videos/3.mp4"),
        ]
        assert (tmp_path / "videos" / "boat.mp4").read_bytes() == MP4
        assert len(gateway.seen("GET", "/content")) == 2, f"run {run}: what is there is not fetched again"
    keys = [s.headers["idempotency-key"] for s in gateway.seen("POST", "/videos")]
    assert keys[:2] == keys[2:] and keys[0] != keys[1]
    assert json.loads(gateway.seen("POST", "/videos")[0].body) == {
        "prompt": "a boat",
        "seed": 7,
        "model": "m",
    }


def test_a_prompt_needs_no_file_and_urls_do_without_a_download(cli: Cli, gateway: ScriptedGateway) -> None:
    done = cli("render", "a boat", "--no-download", "--results", "r.jsonl")
    assert (done.code, done.out) == (0, ""), done.err
    assert gateway.seen("GET", "/content") == []


def test_a_wrong_line_is_named_before_anything_is_submitted(
    cli: Cli, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    good = '{"prompt": "a boat"}\n'
    for wrong in ("{", "[]", '{"id": "x"}', '{"prompt": "a", "id": "../x"}', '{"prompt": "a", "id": "1"}'):
        (tmp_path / "p.jsonl").write_text(good + wrong)
        assert cli("render", "p.jsonl").code == 2, wrong
    assert gateway.seen("POST", "/videos") == []


@pytest.mark.parametrize("where", [("-o", "a-file"), ("-o", "a-file/in"), ("--results", "none/r.jsonl")])
def test_where_nothing_can_be_written_is_said_before_anything_is_submitted(
    cli: Cli, gateway: ScriptedGateway, tmp_path: Path, where: tuple[str, str]
) -> None:
    (tmp_path / "a-file").touch()
    done = cli("render", "a boat", *where)
    assert done.code == 2 and done.err.startswith(f"error: {where[1]}: "), done.err
    assert gateway.seen("POST", "/videos") == []
