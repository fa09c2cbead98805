"""What no gang could serve is refused by the name of its field; what a model can do follows from its declaration."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.errors import InvalidRequest
from turnout.fleet.capability_rules import capabilities, task_type
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, ServerPart, VideoPart
from turnout.fleet.route_rules import cannot_serve
from turnout.fleet.video_model_rules import check_video
from turnout.tasks.video_rules import Lora

RULES = FAMILIES["wan2.2-t2v-a14b"]
COUNTS = ("heads", "spatial", "temporal", "patch", "fps", "max_pixels", "max_frames", "max_steps", "steps")


def lora(**fields: Any) -> dict[str, Any]:
    return {"loras": (Lora(**{"name": "style", "weights": "a.safetensors", **fields}),)}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ulysses": RULES.heads, "cfg": 2, "device": "cuda", "fsdp": True},
        {"fp8": True},
        {"fp8_attention": True, "fsdp": True},
        {"video_engine": "ltx"},
        {"video_engine": "my.engine:Class_2"},
        {**lora(steps=1), "usual_loras": ("style:0.5",)},
        lora(weights="", high="h", low="l", steps=RULES.max_steps),
        {"rules": replace(RULES, guided_share=1.0)},
        {"rules": replace(RULES, **dict.fromkeys(COUNTS, 1))},
    ],
)
def test_what_a_gang_can_serve_passes(fields: dict[str, Any]) -> None:
    check_video(VideoPart(**{"rules": RULES, **fields}))


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        *(
            ({"rules": replace(RULES, **{name: 0})}, "rules", f"rules: {name} must be at least 1")
            for name in (*COUNTS, "default_frames")
        ),
        ({"ulysses": 0}, "ulysses", "40 heads cannot be split 0 ways"),
        ({"ulysses": 3}, "ulysses", "40 heads cannot be split 3 ways"),
        ({"cfg": 3}, "cfg", "cfg is 1 or 2, not 3"),
        ({"cfg": 0}, "cfg", "cfg is 1 or 2, not 0"),
        ({"rules": replace(RULES, guided_share=1.01)}, "rules", "rules: guided_share is from 0.5 to 1"),
        ({"rules": replace(RULES, guided_share=0.0)}, "rules", "rules: guided_share is from 0.5 to 1"),
        (
            {"video_engine": "1x"},
            "video_engine",
            "video_engine is an installed name or an import path module:Class",
        ),
        (
            {"video_engine": "a:b:c"},
            "video_engine",
            "video_engine is an installed name or an import path module:Class",
        ),
        ({"video_engine": "ltx", **lora()}, "loras", "loras are for the wan engine"),
        (lora(name="-a"), "loras", "'-a' is not a name of an adapter"),
        (lora(name="x" * 90), "loras", f"'{'x' * 80}' is not a name of an adapter"),
        (lora(weights=""), "loras", "loras.style: give weights for both experts, or high and low"),
        (lora(high="h"), "loras", "loras.style: give weights for both experts, or high and low"),
        (lora(weights="-rf"), "loras", "loras.style: that is no path"),
        (lora(weights="a\nb"), "loras", "loras.style: that is no path"),
        (lora(steps=0), "loras", f"loras.style: steps are from 1 to {RULES.max_steps}"),
        (lora(steps=RULES.max_steps + 1), "loras", f"loras.style: steps are from 1 to {RULES.max_steps}"),
        ({**lora(), "usual_loras": ("other",)}, "usual_loras", "usual_loras: 'other' is not among the loras"),
        (
            {"fp8": True, "fsdp": True},
            "fp8",
            "fp8 and fsdp exclude each other: shards are of the exact weights",
        ),
        ({"device": "x" * 90}, "device", f"device is one of cpu, cuda; not '{'x' * 80}'"),
        (
            {**lora(), "usual_loras": ("x" * 90,)},
            "usual_loras",
            f"usual_loras: '{'x' * 80}' is not among the loras",
        ),
        ({"device": "tpu"}, "device", "device is one of cpu, cuda; not 'tpu'"),
    ],
)
def test_what_no_gang_can_serve_is_refused_by_name(fields: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_video(VideoPart(**{"rules": RULES, **fields}))
    assert (refused.value.param, str(refused.value)) == (param, says)
    assert refused.value.code == ("invalid_value" if param == "rules" else None)


def chat(*arguments: str) -> Model:
    return Model("m", EngineKind.VLLM, "org/m", server=ServerPart(arguments=arguments))


def video(family: str) -> Model:
    return Model("m", EngineKind.VIDEO, "w", video=VideoPart(FAMILIES[family]))


@pytest.mark.parametrize(
    ("model", "kind", "can"),
    [
        (chat(), "chat", ("chat", "completions", "responses")),
        (chat("--enable-auto-tool-choice"), "chat", ("chat", "completions", "responses", "tools")),
        (chat("--runner=pooling"), "embedding", ("embeddings",)),
        (chat("--convert=embed"), "embedding", ("embeddings",)),
        (chat("--embedding"), "embedding", ("embeddings",)),
        (video("wan2.2-t2v-a14b"), "T2V", ("text_to_video",)),
        (video("wan2.2-i2v-a14b"), "I2V", ("image_to_video",)),
        (video("wan2.2-ti2v-5b"), "TI2V", ("text_to_video", "image_to_video")),
    ],
)
def test_what_a_model_is_for_follows_from_its_declaration(
    model: Model, kind: str, can: tuple[str, ...]
) -> None:
    assert (task_type(model), capabilities(model)) == (kind, can)


def test_video_is_another_name_of_the_engine_of_gangs() -> None:
    assert EngineKind("video") is EngineKind.VIDEO is EngineKind("wan")
    with pytest.raises(ValueError):
        EngineKind("audio")


def test_a_model_that_cannot_be_served_says_why_and_when_to_come_again() -> None:
    refusal = cannot_serve("m", "no GPU is large enough")
    assert str(refusal) == "m cannot be served: no GPU is large enough"
    assert (refusal.param, refusal.code, refusal.retry_after_s) == ("model", "model_unavailable", 10)
