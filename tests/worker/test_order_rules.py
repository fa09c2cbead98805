"""Which orders a worker follows: decided by its own rules."""

from dataclasses import replace
from pathlib import Path

import pytest

from turnout.errors import InvalidRequest
from turnout.fleet.model_rules import EngineKind, Model, ServerPart, VideoPart
from turnout.tasks.video_rules import Lora, VideoRules
from turnout.worker.order_rules import ORDER_REFUSED, OrderRules

ENGINES = frozenset({EngineKind.LLAMACPP, EngineKind.VLLM})


def refused(
    rules: OrderRules, replica: str, order: Model, gpus: tuple[int, ...] = (), have: tuple[int, ...] = ()
) -> str:
    """Why, as it is told to the gateway."""
    with pytest.raises(InvalidRequest) as refusal:
        rules.check(replica, order, gpus, have)
    assert refusal.value.code == ORDER_REFUSED
    begin = "this worker refuses the order: "
    assert refusal.value.message.startswith(begin)
    return refusal.value.message.removeprefix(begin)


def model(weights: str, engine: EngineKind = EngineKind.LLAMACPP) -> Model:
    return Model("m", engine, weights)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.gguf").touch()
    (tmp_path / "secret").touch()
    (tmp_path / "models" / "link").symlink_to(tmp_path / "secret")
    return tmp_path


@pytest.mark.parametrize(
    ("weights", "allowed"),
    [
        ("builtin:smollm2", True),
        ("org/name", True),
        ("declared/here.gguf", True),
        ("{}/models/a.gguf", True),
        ("{}/models", True),
        ("{}/models/../secret", False),
        ("{}/models/link", False),
        ("{}/secret", False),
        ("/etc/passwd", False),
        ("../secret", False),
        ("./models", False),
        ("~/x", False),
    ],
)
def test_weights_lie_where_the_worker_allows_it(folder: Path, weights: str, allowed: bool) -> None:
    rules = OrderRules(ENGINES, weights=frozenset({"declared/here.gguf"}), weights_dirs=(folder / "models",))
    order = model(weights.format(folder))
    if allowed:
        return rules.check("r1", order, (), ())
    said = f"the weights {order.weights[:80]!r} lie in no folder that is allowed here (worker_weights_dirs)"
    assert refused(rules, "r1", order) == said


def test_a_name_of_the_hub_that_is_a_folder_here_is_a_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert "the weights 'models' lie" in refused(OrderRules(ENGINES), "r1", model("models"))


def test_without_folders_to_keep_to_any_weights_are_loaded() -> None:
    OrderRules(ENGINES, weights_dirs=None).check("r1", model("/any/where.gguf"), (), ())


def test_engines_commands_and_gpus_are_the_workers_own() -> None:
    rules = OrderRules(ENGINES)
    video = model("w", EngineKind.VIDEO)
    assert refused(rules, "r1", video) == f"{video.engine} engines are not allowed here (worker_engines)"
    missing = "it has not all of the GPUs that the order names"
    assert refused(rules, "r1", model("w"), (0, 7), (0, 1)) == missing
    rules.check("r1", model("w"), (0, 1), (1, 0, 2))
    sneaky = Model("m", EngineKind.LLAMACPP, "w", server=ServerPart(command=("id" * 50, "-u")))
    said = f"the command {'id' * 40!r} is not allowed here (worker_commands)"
    assert refused(rules, "r1", sneaky) == said
    OrderRules(ENGINES, commands=frozenset({sneaky.server.command})).check("r1", sneaky, (), ())
    OrderRules(ENGINES, commands=None).check("r1", sneaky, (), ())
    for name in ("", "../x", "a/b", ".x", "x\n", "x" * 101):
        assert refused(rules, name, model("w")) == "the replica's name is not one"
    rules.check("x" * 100, model("w"), (), ())


def test_an_import_path_is_run_only_where_the_workers_own_file_has_it() -> None:
    def rendered_by(engine: str) -> Model:
        return replace(model("w", EngineKind.VIDEO), video=VideoPart(VideoRules(1), video_engine=engine))

    kinds = frozenset({EngineKind.VIDEO})
    OrderRules(kinds).check("r1", rendered_by("installed-name"), (), ())
    OrderRules(kinds, video_engines=frozenset({"a.b:C"})).check("r1", rendered_by("a.b:C"), (), ())
    OrderRules(kinds, commands=None).check("r1", rendered_by("a.b:C"), (), ())
    said = f"the video engine {('os:' + 'x' * 77)!r} is declared in no file here"
    rules = OrderRules(kinds, video_engines=frozenset({"a.b:C"}))
    assert refused(rules, "r1", rendered_by("os:" + "x" * 100)) == said


def test_adapters_are_loaded_from_allowed_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "lora").touch()
    video = VideoPart(VideoRules(1), loras=(Lora("a", high=str(tmp_path / "lora")),))
    ordered = replace(model("builtin:x", EngineKind.VIDEO), video=video)
    kinds = frozenset({EngineKind.VIDEO})
    OrderRules(kinds, weights_dirs=(tmp_path,)).check("r1", ordered, (), ())
    elsewhere = OrderRules(kinds, weights_dirs=(tmp_path / "other",))
    assert refused(elsewhere, "r1", ordered).startswith("the weights '")
