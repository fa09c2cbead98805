"""Models are fetched from hubs, go on where they were stopped, and are what the hub says they are."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.fake_hub import FakeHub, fake_hub

from turnout.engines.hub import HuggingFace, ModelScope, Pull
from turnout.errors import InvalidRequest, NotFound, Unavailable

LARGE = os.urandom(300_000)
FILES = {
    "model_index.json": b"{}",
    ".gitattributes": b"x",
    "README.md": b"words",
    "transformer/model-1.safetensors": LARGE,
    "transformer/model-2.safetensors": os.urandom(50_000),
}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub(dict(FILES)) as running:
        yield running


def seen(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if not path.startswith(".")}


WANTED = {path: data for path, data in FILES.items() if not path.startswith(".")}


def test_the_fake_speaks_the_hubs_protocol(hub: FakeHub, tmp_path: Path) -> None:
    """Its own library takes it for a hub."""
    from huggingface_hub import snapshot_download

    got = snapshot_download(
        "org/tiny", local_dir=tmp_path / "theirs", endpoint=hub.url, cache_dir=tmp_path / "cache"
    )
    assert WANTED.items() <= seen(Path(got)).items()


def test_a_killed_pull_goes_on_where_it_was(hub: FakeHub, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "turnout", "models", "pull", "org/tiny", "--state-dir", str(state)]
    environ = {**os.environ, "HF_ENDPOINT": hub.url}
    hub.stall = ("transformer/model-1.safetensors", 200_000)
    part = state / "models/org/tiny/transformer/model-1.safetensors.part"
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as pulling:
        deadline = time.monotonic() + 60
        index = state / "models/org/tiny/model_index.json"
        while not (part.exists() and part.stat().st_size == 200_000 and index.exists()):
            assert pulling.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        pulling.kill()
    hub.stall = None
    hub.ranges.clear()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "weights: org/tiny" in done.stdout
    assert seen(state / "models/org/tiny") == WANTED
    assert ("transformer/model-1.safetensors", "bytes=200000-") in hub.ranges
    assert "model_index.json" not in [path for path, _ in hub.ranges], "what was there is not fetched again"


def test_a_broken_connection_is_taken_up_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.breaks = ("transformer/model-1.safetensors", 120_000)
    told: list[tuple[int, int]] = []
    size = Pull(HuggingFace("org/tiny", endpoint=hub.url), tmp_path).run(lambda *at: told.append(at))
    assert seen(tmp_path) == WANTED and size == sum(map(len, WANTED.values()))
    assert told[-1] == (size, size) and max(done for done, _ in told) == size
    assert ("transformer/model-1.safetensors", "bytes=120000-") in hub.ranges


def test_modelscope_has_a_protocol_of_its_own(hub: FakeHub, tmp_path: Path) -> None:
    Pull(ModelScope("org/tiny", endpoint=hub.url), tmp_path, exclude=["*.md"]).run()
    assert seen(tmp_path) == {path: data for path, data in WANTED.items() if path != "README.md"}


def test_bytes_that_are_not_the_hubs_are_thrown_away(hub: FakeHub, tmp_path: Path) -> None:
    part = tmp_path / "transformer/model-1.safetensors.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * 1000)
    with pytest.raises(Unavailable, match="other bytes"):
        Pull(HuggingFace("org/tiny", endpoint=hub.url), tmp_path).run()
    assert not part.exists()
    Pull(HuggingFace("org/tiny", endpoint=hub.url), tmp_path).run()
    assert seen(tmp_path) == WANTED


def test_a_file_that_changed_at_the_hub_is_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    Pull(HuggingFace("org/tiny", endpoint=hub.url), tmp_path).run()
    hub.contents["model_index.json"] = b"[]"
    Pull(HuggingFace("org/tiny", endpoint=hub.url), tmp_path).run()
    assert (tmp_path / "model_index.json").read_bytes() == b"[]"


def test_a_hub_cannot_write_outside_of_the_folder(tmp_path: Path) -> None:
    with fake_hub({"../evil": b"x"}) as hub, pytest.raises(InvalidRequest, match="outside"):
        Pull(HuggingFace("org/tiny", endpoint=hub.url), tmp_path / "in").run()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("link", ["model_index.json", "model_index.json.part", "transformer"])
def test_a_link_in_the_folder_is_not_followed(hub: FakeHub, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / link).symlink_to(outside if link == "transformer" else outside / "file")
    with pytest.raises(InvalidRequest, match="is a link"):
        Pull(HuggingFace("org/tiny", None, hub.url), folder).run()
    assert {p.name: p.read_bytes() for p in outside.iterdir()} == {"file": b"mine"}


def test_a_link_in_place_of_the_notes_is_replaced(hub: FakeHub, tmp_path: Path) -> None:
    outside, folder = tmp_path / "mine", tmp_path / "model"
    outside.write_bytes(b"mine")
    folder.mkdir()
    for name in (".turnout-pull.json", ".turnout-pull.json.new"):
        (folder / name).symlink_to(outside)
    Pull(HuggingFace("org/tiny", None, hub.url), folder).run()
    assert outside.read_bytes() == b"mine"


def test_a_list_that_goes_on_at_another_host_is_not_followed(hub: FakeHub, tmp_path: Path) -> None:
    with fake_hub(dict(FILES)) as other:
        hub.continues_at = other.url
        with pytest.raises(Unavailable, match="elsewhere"):
            Pull(HuggingFace("org/tiny", None, hub.url), tmp_path, token="hf_secret").run()
        assert other.authorizations == [] and "Bearer hf_secret" in hub.authorizations


@pytest.mark.parametrize(
    "tree",
    [
        ["a", "b"],
        [{"type": "file", "path": "x", "size": "many"}],
        [{"type": "file", "path": "x", "lfs": "y"}],
        {"no": "list"},
        [{"type": "file", "path": "x" * 5000, "size": 1, "oid": "c"}],
    ],
)
def test_an_odd_list_is_an_error_in_words(hub: FakeHub, tmp_path: Path, tree: Any) -> None:
    hub.odd_tree = tree
    with pytest.raises((Unavailable, InvalidRequest, NotFound)):
        Pull(HuggingFace("org/tiny", None, hub.url), tmp_path).run()


def test_an_unknown_model_is_said_to_be_one(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such model"):
        Pull(HuggingFace("org/other", endpoint=hub.url), tmp_path).run()
