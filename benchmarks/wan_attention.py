# pyright: reportPrivateImportUsage=false
"""How far each way to compute attention is off fp32, on queries, keys and values of real renders.

Captured are the shipped tiny model's (trained, so their attention looks at something) and, on a GPU, a model of A14B's shape with
random weights. Runs alone, too (`python -m benchmarks.wan_attention`). What the engine has is measured as it is; the others are
rounded in plain PyTorch, to say why they were not taken.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.figures import Cell, Table, say
from benchmarks.wan import GPU, _inputs, _our_transformer, _stock_transformer

Attend = Callable[[Any, Any, Any], Any]
WEIGHTS = Path(__file__).parent.parent / "src/turnout/weights"
PROMPTS = (
    "a red circle moving to the right on a white background",
    "two blue stars spinning on black",
    "紫色十字变大,灰色背景",
)
EVERY = 5
"""Of the steps of a render, so many apart are looked at: the first and the last, too."""
LARGE_HEADS = 4
"""Of the large model's: heads do not see each other, and fp32 takes long."""


@dataclass(slots=True)
class Tally:
    """Squared differences by way, and the squares of what they are compared with."""

    off: dict[str, float] = field(default_factory=dict[str, float])
    worst: dict[str, float] = field(default_factory=dict[str, float])
    whole: float = 0.0

    def add(self, ways: dict[str, Attend], q: Any, k: Any, v: Any) -> None:
        exact = _in_fp32(q, k, v)
        size = float(exact.square().sum())
        self.whole += size
        for name, attend in ways.items():
            off = float((attend(q, k, v).float() - exact).square().sum())
            self.off[name] = self.off.get(name, 0.0) + off
            self.worst[name] = max(self.worst.get(name, 0.0), (off / size) ** 0.5)

    def percent(self, name: str) -> list[Cell]:
        return [100 * (self.off[name] / self.whole) ** 0.5, 100 * self.worst[name]]


async def measure() -> Table:
    """How far attention is off fp32 in each way, on captured renders."""
    return await asyncio.to_thread(_measure)


def _measure() -> Table:
    import torch

    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    on_gpu = torch.cuda.is_available()
    device, dtype = torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16 if on_gpu else torch.float32
    tallies = {"tiny model": _tiny("wan-tiny-t2v", device, dtype)}
    if on_gpu:
        tallies["A14B's shape, 480p"] = _large(device)
    columns = ["off fp32, %", *(column for name in tallies for column in (name, f"{name}, worst call"))]
    ways = next(iter(tallies.values())).off
    rows: list[Sequence[Cell]] = [
        [way, *(cell for tally in tallies.values() for cell in tally.percent(way))] for way in ways
    ]
    notes = ["" if on_gpu else "No GPU: fp8 attention is its plain twin."]
    return Table(f"Attention on captured renders ({device.type})", columns, rows, [n for n in notes if n])


def _ways(device: Any, dtype: Any, head_width: int) -> dict[str, Attend]:
    from turnout.engines.wan import attention
    from turnout.engines.wan.fp8_attention import rotated, rounded

    exact = attention.choose_attention(device, dtype, head_width)
    fast = attention.choose_fp8_attention(device, dtype, head_width)

    def plain8(x: Any) -> Any:
        return rounded(x, x.norm(dim=-1).amax(1)).exact()

    def int8(x: Any) -> Any:
        scales = x.abs().amax(-1, keepdim=True).clamp_min(1e-8) / 127
        return (x / scales).round() * scales

    ways: dict[str, Attend] = {f"exact ({exact.name})": exact.attend}
    if fast is not None:
        ways["fp8 attention (rotated, means of K and V off)"] = fast.attend
    ways["e4m3 Q and K, V's mean off"] = _by_head(plain8, plain8)
    ways["e4m3 Q and K, means of K and V off"] = _by_head(plain8, lambda k: plain8(_centred(k)))
    ways["INT8 Q and K by token, rotated, means off"] = _by_head(
        lambda q: int8(rotated(q)), lambda k: int8(rotated(_centred(k)))
    )
    return ways


def _centred(x: Any) -> Any:
    return x - x.mean(1, keepdim=True)


def _by_head(queries: Callable[[Any], Any], keys: Callable[[Any], Any]) -> Attend:
    """Attention whose queries and keys are rounded so, and weights and values as in fp8 attention."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        import torch

        from turnout.engines.wan.fp8_attention import seen_in_fp8

        heads = ([each[:, :, n : n + 1].float() for each in (q, k, v)] for n in range(q.shape[2]))
        return torch.cat([seen_in_fp8(queries(q), keys(k), v) for q, k, v in heads], 2)

    return attend


def _in_fp32(q: Any, k: Any, v: Any) -> Any:
    import torch

    seen: list[Any] = []
    for n in range(q.shape[2]):
        q1, k1, v1 = (each[:, :, n].float() for each in (q, k, v))
        seen.append((q1 @ k1.transpose(1, 2) * q.shape[-1] ** -0.5).softmax(-1) @ v1)
    return torch.stack(seen, 2)


def _tiny(name: str, device: Any, dtype: Any) -> Tally:
    from turnout.engines.base import EngineSetup, Parallel
    from turnout.engines.wan.load import make_engine
    from turnout.fleet.family_rules import FAMILIES
    from turnout.tasks.video_rules import RequestedVideo, settle

    words = {"cuda": "bfloat16", "cpu": "float32"}
    engine = make_engine(EngineSetup(WEIGHTS / name, Parallel(), device.type, words[device.type]))  # type: ignore[arg-type]
    ways, tally = _ways(device, dtype, engine.model.experts[0].shape.head_width), Tally()
    exact = next(iter(ways.values()))
    for seed, prompt in enumerate(PROMPTS):
        rendering = engine.begin(settle(RequestedVideo(prompt), FAMILIES[name], ulysses=1, seed=seed), None)

        def looking(q: Any, k: Any, v: Any) -> Any:
            tally.add(ways, q, k, v)
            return exact(q, k, v)

        last = rendering.of - 1
        while rendering.step < rendering.of:
            looks = rendering.step % EVERY == 0 or rendering.step == last
            rendering._attend = lambda looks=looks: looking if looks else None
            rendering.advance()
        say(f"{name}: captured {prompt!r}")
    return tally


def _large(device: Any) -> Tally:
    import torch

    from turnout.engines.wan.transformer import StepTimes, TextContext

    stock = _stock_transformer(GPU)
    ours, _ = _our_transformer(stock, device, torch.bfloat16, quantises=False)
    del stock
    ways, tally, blocks = _ways(device, torch.bfloat16, ours.shape.head_width), Tally(), count()
    exact = next(iter(ways.values()))

    def looking(q: Any, k: Any, v: Any) -> Any:
        if next(blocks) % 13 == 0:  # four of forty
            tally.add(ways, *(each[:, :, :LARGE_HEADS] for each in (q, k, v)))
        return exact(q, k, v)

    latents, text = _inputs(GPU, GPU.sizes[0])
    ours(latents, StepTimes(torch.full((1,), 700.0, device=device)), TextContext(text), looking)
    return tally


if __name__ == "__main__":
    print(_measure().text())
