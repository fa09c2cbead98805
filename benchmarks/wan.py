# pyright: reportPrivateImportUsage=false
"""Wan2.2 on this machine's GPU beside stock diffusers, in one run: forwards, steps, memory, errors, loading, decoding.

Weights are random at the shapes of A14B, so no download is needed; speed and rounding errors do not depend on training.
Runs alone, too (`python -m benchmarks.wan FILE.json [PART…]`), where only torch, diffusers and the engine are installed. Without
a GPU it takes a tiny shape: that says nothing about speed, but keeps this file tested.
"""

import asyncio
import copy
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from benchmarks.device_time import seconds_of, sustained, synchronize
from benchmarks.figures import Cell, Table, say
from benchmarks.wan_kernels import kernels_alone_s

STOCK, EXACT, FP8 = "stock", "exact", "fp8"
ATTENTION8, BOTH = "fp8 attention", "both"
OURS = {EXACT: "exact", ATTENTION8: "fp8 attention", FP8: "fp8 linears", BOTH: "both"}
PARTS = ("ceilings", "decode", "forwards", "load", "experts")
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    width: int
    height: int
    frames: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: on a GPU the real shapes, elsewhere tiny ones."""

    device: str
    dtype: str
    sizes: tuple[Size, ...]
    transformer: dict[str, Any]
    vae: dict[str, Any]
    vae_sizes: tuple[Size, ...]
    error_blocks: int
    load_blocks: int
    """Half of the blocks: more would not stay in the page cache until they are written."""
    shards: int


GPU = Plan(
    device="cuda",
    dtype="bfloat16",
    sizes=(Size("480p/81f", 832, 480, 81, 3), Size("720p/81f", 1280, 720, 81, 2)),
    transformer={},
    vae={},
    vae_sizes=(Size("480p/81f", 832, 480, 81, 2), Size("720p/81f", 1280, 720, 81, 1)),
    error_blocks=4,
    load_blocks=20,
    shards=6,
)
CPU = Plan(
    device="cpu",
    dtype="float32",
    sizes=(Size("tiny", 64, 64, 9, 1),),
    transformer={
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "ffn_dim": 64,
        "text_dim": 32,
        "freq_dim": 32,
        "num_layers": 2,
    },
    vae={"base_dim": 8, "num_res_blocks": 1},
    vae_sizes=(Size("tiny", 64, 64, 5, 1),),
    error_blocks=1,
    load_blocks=1,
    shards=2,
)


@dataclass(slots=True)
class Figures:
    """What was measured, by the name of a row and of a column."""

    cells: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    notes: list[str] = field(default_factory=list[str])

    def put(self, row: str, column: str, value: float) -> None:
        self.cells.setdefault(row, {})[column] = value
        say(f"{row}: {column} {value:.4g}")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that fails is noted; the others go on."""
        began = time.monotonic()
        try:
            yield
        except Exception as err:  # noqa: BLE001 (the other parts are still worth their figures)
            traceback.print_exc()
            self.notes.append(f"{name} failed: {type(err).__name__}: {str(err)[:300]}")
        say(f"{name} took {time.monotonic() - began:.1f} s")

    def table(self, title: str) -> Table:
        columns = ["figure", "stock diffusers"]
        for place, shown in enumerate(OURS.values()):
            columns += [shown, "of stock" + " " * place]  # a name each, for the figures as JSON
        rows: list[Sequence[Cell]] = []
        for name, row in self.cells.items():
            stock, cells = row.get(STOCK), list[Cell]()
            for column in OURS:
                value = row.get(column)
                cells += [value, None if not stock or value is None else value / stock]
            rows.append([name, stock, *cells])
        return Table(title, columns, rows, self.notes)


async def measure() -> Table:
    """Wan2.2's forward, step, load and decode beside stock diffusers."""
    return await asyncio.to_thread(_measure)


def _measure(parts: Sequence[str] = PARTS) -> Table:
    import diffusers
    import torch

    plan = GPU if torch.cuda.is_available() else CPU
    figures = Figures()
    where = torch.cuda.get_device_name() if plan is GPU else f"{platform.machine()} CPU"
    title = (
        f"Wan2.2 T2V-A14B, random weights, on {where} (torch {torch.__version__}, "
        f"diffusers {diffusers.__version__}, {datetime.now(UTC).date()})"
    )
    if plan is CPU:
        figures.notes.append("No GPU: a tiny shape on the CPU. Figures need one GPU with 100 GiB of memory.")
    torch.set_grad_enabled(False)
    if "ceilings" in parts and plan is GPU:
        with figures.part("ceilings"):
            _ceilings(figures)
    if "decode" in parts:
        with figures.part("decode"):
            _decode(plan, figures)
    bench = None
    with figures.part("models"):
        bench = Forwards(plan, figures)
    if bench is not None:
        _measure_forwards(plan, figures, bench, parts)
    return figures.table(title)


def _measure_forwards(plan: Plan, figures: Figures, bench: "Forwards", parts: Sequence[str]) -> None:
    if "forwards" in parts:
        with figures.part("forwards, stock and exact"):
            bench.run((STOCK, EXACT, ATTENTION8))
    if "load" in parts:
        with figures.part("load"):
            _load(plan, figures, bench.stock)
    if "experts" in parts:
        with figures.part("experts in turn"):
            _experts_in_turn(plan, figures, bench)
    if "forwards" in parts:
        with figures.part("forwards, fp8"):
            bench.to_fp8()
            bench.run((FP8, BOTH))
        with figures.part("kernels alone"):
            for size in plan.sizes:
                for column, seconds in kernels_alone_s(
                    bench.stock.config, _tokens(size), bench.device
                ).items():
                    figures.put(f"kernels alone {size.name}, s", column, seconds)


class Forwards:
    """One expert five times: as diffusers runs it, as the engine does, with fp8 attention, with fp8 linears, with both."""

    def __init__(self, plan: Plan, figures: Figures) -> None:
        import torch

        self.plan, self.figures = plan, figures
        self.device, self.dtype = torch.device(plan.device), getattr(torch, plan.dtype)
        self.stock = _stock_transformer(plan)
        self.ours, attention = _our_transformer(self.stock, self.device, self.dtype, quantises=False)
        self.reference: Any = None
        self.exact_outputs: dict[str, Any] = {}
        from turnout.engines.wan.attention import choose_fp8_attention

        fast = choose_fp8_attention(self.device, self.dtype, self.ours.shape.head_width)
        self.attend8 = None if fast is None else fast.attend
        figures.notes.append(
            f"Attention of the exact path and of fp8 linears: {attention}; of fp8 attention and both: "
            f"{'the same, for want of a kernel' if fast is None else fast.name}."
        )

    def to_fp8(self) -> None:
        from turnout.engines.wan.transformer import quantise

        self.ours, _ = _our_transformer(self.stock, self.device, self.dtype, quantises=True, into=self.ours)
        quantise(self.ours)

    def run(self, columns: tuple[str, ...]) -> None:
        for column in columns:
            with self.figures.part(f"error of {column}"):
                self._error(column)
        for size in self.plan.sizes:
            for column in columns:
                with self.figures.part(f"{column} at {size.name}"):
                    self._speed(column, size)
        for column in columns:
            with self.figures.part(f"step of {column}"):
                self._step(column, self.plan.sizes[0])

    def _forward(self, column: str, size: Size, model: Any = None) -> Callable[[], Any]:
        import torch

        from turnout.engines.wan.transformer import StepTimes, TextContext

        latents, text = _inputs(self.plan, size)
        time_ = torch.full((1,), 700.0, device=self.device)
        if column == STOCK:
            model = model or self.stock
            dtype = model.patch_embedding.weight.dtype
            latents, text = latents.to(dtype), text.to(dtype)
            return lambda: model(latents, time_, text, return_dict=False)[0]
        context = TextContext(text)
        attend = self.attend8 if column in (ATTENTION8, BOTH) else None
        return lambda: self.ours(latents, StepTimes(time_), context, attend)

    def _error(self, column: str) -> None:
        """Against fp32 (no TF32), over a few blocks: in one dtype the paths differ by rounding alone."""
        import torch

        size = self.plan.sizes[0]
        if self.reference is None:
            with _first_blocks(self.stock, self.plan.error_blocks):
                exact = copy.deepcopy(self.stock).float()
            with _without_tf32():
                self.reference = self._forward(STOCK, size, exact)()
            del exact
        with _first_blocks(self.stock if column == STOCK else self.ours, self.plan.error_blocks):
            out = self._forward(column, size)().float()
        error = float((out - self.reference).norm() / self.reference.norm())
        row = f"error against fp32 over {self.plan.error_blocks} blocks, %"
        self.figures.put(row, column, 100 * error)
        if column == BOTH:
            self.reference = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _speed(self, column: str, size: Size) -> None:
        model = self.stock if column == STOCK else self.ours
        forward = self._forward(column, size)
        with _first_blocks(model, 2):
            forward()
        forward = self._forward(column, size)  # the text's keys are made in the timed rounds, as in a render
        outputs: list[Any] = []
        with _peak(self.device) as peak:
            seconds = seconds_of(lambda: outputs.append(forward()), size.rounds)
        self._compare(column, size, outputs[-1].float())
        self.figures.put(f"forward {size.name}, s", column, seconds)
        tflops = _forward_flops(self.stock.config, size) / seconds / 1e12
        self.figures.put(f"forward {size.name}, TFLOP/s", column, tflops)
        self.figures.put(f"memory beside weights {size.name}, GiB", column, peak[0] / GIB)

    def _compare(self, column: str, size: Size, out: Any) -> None:
        """Over all blocks, where fp32 would take too long to compare with."""
        if column == EXACT:
            self.exact_outputs[size.name] = out
        if column in OURS and (exact := self.exact_outputs.get(size.name)) is not None:
            error = float((out - exact).norm() / exact.norm())
            self.figures.put(f"difference from exact over all blocks {size.name}, %", column, 100 * error)

    def _step(self, column: str, size: Size) -> None:
        """A denoise step with guidance, by the engine's own loop; one of those that have fp8 attention, if any has."""
        expert = StockExpert(self.stock) if column == STOCK else self.ours
        fast = column in (ATTENTION8, BOTH) and self.attend8 is not None
        rendering = _rendering(self.plan, size, expert, self.device, self.dtype, fast)
        rendering.advance()
        seconds = seconds_of(rendering.advance, min(2, size.rounds), wall=True)
        self.figures.put(f"step with guidance {size.name}, s", column, seconds)


class StockExpert:
    """Diffusers' transformer where the engine's loop expects ours."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, seen: Any, times: Any, text: Any, _attend: Any = None) -> Any:
        return self._model(seen, times.values, text.embeddings, return_dict=False)[0]


def _stock_transformer(plan: Plan) -> Any:
    import torch
    from diffusers import WanTransformer3DModel
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    dtype = getattr(torch, plan.dtype)
    torch.manual_seed(0)
    with torch.device("meta"):
        model: Any = WanTransformer3DModel(**plan.transformer).to(dtype)
    model.requires_grad_(False).eval().to_empty(device=plan.device)
    model.rope = WanRotaryPosEmbed(model.config.attention_head_dim, (1, 2, 2), 1024).to(plan.device)
    kept_exact = ("time_embedder", "scale_shift_table", "norm2")
    for name, weight in model.named_parameters():
        if any(part in name for part in kept_exact):
            weight.data = weight.data.float()
        if "norm" in name and name.endswith("weight"):
            weight.data.fill_(1)
        elif "scale_shift" in name:
            weight.data.normal_(0, weight.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            weight.data.normal_(0, 0.02)
        else:  # unit gain, so that values keep their size through all blocks
            weight.data.normal_(0, weight[0].numel() ** -0.5)
    return model


def _our_transformer(
    stock: Any, device: Any, dtype: Any, quantises: bool, into: Any = None
) -> tuple[Any, str]:
    """The engine's transformer with stock's weights, or with those of `into`, and the name of its attention."""
    import torch

    from turnout.engines.sequence import SequenceShare
    from turnout.engines.wan.attention import choose_attention
    from turnout.engines.wan.load import choose_ops
    from turnout.engines.wan.transformer import Runtime, WanTransformer, read_transformer_shape, weight_map

    shape = read_transformer_shape(dict(stock.config))
    attention = choose_attention(device, dtype, shape.head_width)
    ops, outer = choose_ops(device, dtype, quantises), choose_ops(device, dtype, False)
    with torch.device("meta"):
        ours = WanTransformer(shape, dtype, Runtime(ops, outer, attention, SequenceShare())).eval()
    if into is not None:
        ours.load_state_dict(into.state_dict(), assign=True)
        return ours, attention.name
    ours.to_empty(device=device)
    theirs = stock.state_dict()
    for name, parts in weight_map(shape.layers).items():
        parameter = ours.get_parameter(name)
        parameter.data.copy_(torch.cat([theirs[part] for part in parts]).view(parameter.shape))
    return ours, attention.name


def _inputs(plan: Plan, size: Size) -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    dtype = getattr(torch, plan.dtype)
    latents = torch.randn(1, 16, *_latent_size(size), generator=generator)
    text = torch.randn(1, 512, plan.transformer.get("text_dim", 4096), generator=generator)
    return latents.to(plan.device, dtype), text.to(plan.device, dtype)


def _rendering(plan: Plan, size: Size, expert: Any, device: Any, dtype: Any, fp8_attention: bool) -> Any:
    import torch

    from turnout.engines.base import Parallel
    from turnout.engines.rank_layout import RankLayout
    from turnout.engines.wan.expert_memory import ExpertMemory
    from turnout.engines.wan.inputs import Inputs
    from turnout.engines.wan.lora_weights import AdaptedExperts
    from turnout.engines.wan.rendering import WanRendering
    from turnout.engines.wan.shape import DEFAULTS, WanShape
    from turnout.engines.wan.solver import Solver
    from turnout.engines.wan.step_cache import StepCache
    from turnout.engines.wan.wan_model import WanModel
    from turnout.tasks.video_rules import VideoSpec

    shape = WanShape("t2v", 40, 40, (1, 2, 2), 16, 8, 4, None, 1, DEFAULTS["t2v"])
    schedule = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "num_train_timesteps": 1000}
    layout = RankLayout(0, Parallel(), None)
    model = WanModel(
        shape,
        "",
        layout,
        device,
        dtype,
        experts=(expert,),
        memory=ExpertMemory(device, movable=False),
        adapted=AdaptedExperts((), {}),
        schedule=schedule,
        codec=cast("Any", None),
        leader=None,
        tile_above_pixels=0,
    )
    spec = VideoSpec(
        *("", "", size.width, size.height, size.frames, 16, 40, (3.0, 4.0), 12.0, 0),
        fp8_attention=fp8_attention,
    )
    _, text = _inputs(plan, size)
    latents = torch.randn(1, 16, *_latent_size(size), device=device)
    inputs = Inputs(text, text.flip(1), None)
    return WanRendering(
        model, spec, inputs, Solver(schedule, 40, 12.0, device), latents, 20, StepCache(0.0, 40)
    )


def _latent_size(size: Size) -> tuple[int, int, int]:
    return (size.frames - 1) // 4 + 1, size.height // 8, size.width // 8


def _tokens(size: Size) -> int:
    frames, height, width = _latent_size(size)
    return frames * (height // 2) * (width // 2)


def _forward_flops(config: Any, size: Size) -> float:
    """Of the products and the attentions: a multiplication and an addition are two."""
    tokens = _tokens(size)
    inner = config.num_attention_heads * config.attention_head_dim
    products = 2 * tokens * (6 * inner * inner + 2 * inner * config.ffn_dim)
    return config.num_layers * (products + 4 * tokens * (tokens + 512) * inner)


def _ceilings(figures: Figures) -> None:
    """What the GPU gives to a product and to an attention alone, for long enough to settle its clocks."""
    import torch
    import torch.nn.functional as F

    from turnout.engines.wan import attention
    from turnout.engines.wan.block_ops import quantise_rows

    tokens, width, hidden = 32_760, 5120, 13824
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(hidden, width, device="cuda", dtype=torch.bfloat16)
    flops = 2 * tokens * width * hidden
    figures.put("ceiling: product, TFLOP/s", EXACT, flops / sustained(lambda: F.linear(x, w)) / 1e12)
    x8, w8 = quantise_rows(x), quantise_rows(w)
    scales = w8.scales.t().contiguous()

    def product8() -> Any:
        return torch._scaled_mm(
            x8.values,
            w8.values.t(),
            scale_a=x8.scales,
            scale_b=scales,
            out_dtype=x.dtype,
            use_fast_accum=True,
        )

    figures.put("ceiling: product, TFLOP/s", FP8, flops / sustained(product8) / 1e12)
    q, k, v = (torch.randn(1, tokens, 40, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    flops = 4 * 40 * tokens * tokens * 128
    rate = flops / sustained(lambda: attention.sdpa(q, k, v)) / 1e12
    figures.put("ceiling: attention, TFLOP/s", STOCK, rate)
    for kernel in attention._fast_kernels(torch.device("cuda")):
        try:
            rate = flops / sustained(lambda kernel=kernel: kernel.attend(q, k, v)) / 1e12
        except RuntimeError as err:
            figures.notes.append(f"attention by {kernel.name} failed: {str(err)[:200]}")
            continue
        figures.put(f"ceiling: attention by {kernel.name}, TFLOP/s", EXACT, rate)
    fast = attention.choose_fp8_attention(torch.device("cuda"), torch.bfloat16, 128)
    if fast is not None:
        rate = flops / sustained(lambda: fast.attend(q, k, v)) / 1e12
        figures.put(f"ceiling: attention by {fast.name}, TFLOP/s", ATTENTION8, rate)


def _decode(plan: Plan, figures: Figures) -> None:
    import torch
    from diffusers import AutoencoderKLWan

    from turnout.engines.wan.codec import Codec

    torch.manual_seed(0)
    with torch.device(plan.device):
        stock: Any = AutoencoderKLWan(**plan.vae).eval().requires_grad_(False)
    ours = copy.deepcopy(stock)
    if plan is GPU:
        from turnout.engines.wan.fast_decoder import speed_up_decoder

        speed_up_decoder(ours)
    device = torch.device(plan.device)
    for size in plan.vae_sizes:
        latents = torch.randn(1, 16, *_latent_size(size), device=device)
        _decode_size(size, stock, Codec(stock), Codec(ours), latents, figures)


def _decode_size(size: Size, stock: Any, plain: Any, ours: Any, latents: Any, figures: Figures) -> None:
    import numpy as np

    def in_one_piece() -> Any:
        # As diffusers does it, to frames in host memory.
        pixels = stock.decode(latents / plain._scale + plain._mean, return_dict=False)[0]
        return plain._bytes(pixels[0]).cpu().numpy()

    def streamed(rows: Any = None) -> Any:
        return np.concatenate(list(ours.decode(latents, rows)))

    device, out = latents.device, dict[str, Any]()
    for column, decode in ((STOCK, in_one_piece), (EXACT, streamed)):
        decode()
        with _peak(device) as peak:
            seconds = seconds_of(decode, size.rounds, wall=True)
        out[column] = decode().astype(float)
        figures.put(f"VAE decode {size.name}, s", column, seconds)
        figures.put(f"VAE decode memory {size.name}, GiB", column, peak[0] / GIB)
    error = np.linalg.norm(out[EXACT] - out[STOCK]) / np.linalg.norm(out[STOCK])
    figures.put(f"VAE decode {size.name}, difference from fp32 with TF32, %", EXACT, 100 * float(error))
    _decode_in_bands(size, streamed, out[EXACT], latents.shape[-2], device, figures)
    _encode_beside(size, lambda: ours.decode(latents), figures)


def _experts_in_turn(plan: Plan, figures: Figures, bench: Forwards) -> None:
    """The same expert twice, one of them on the host: what its steps wait for when it comes."""
    from turnout.engines.wan.expert_memory import ExpertMemory

    memory = ExpertMemory(bench.device, movable=True)
    memory.add(bench.ours)
    size = plan.sizes[0]
    forward = bench._forward(EXACT, size)
    forward()
    figures.put("expert: forward, s", EXACT, seconds_of(forward, 2, wall=True))

    def timed(act: Callable[[], None]) -> float:
        synchronize(bench.device)
        began = time.monotonic()
        act()
        synchronize(bench.device)
        return time.monotonic() - began

    def leave() -> None:
        memory._send(0)

    def come_and_compute() -> None:
        memory.use(0)
        forward()

    figures.put("expert: to the host for the first time, s", EXACT, timed(leave))
    figures.put("expert: from the host, s", EXACT, timed(lambda: memory.use(0)))
    figures.put("expert: to the host again, s", EXACT, timed(leave))
    figures.put(
        "expert: from the host, with the forward that waits for it, s", EXACT, timed(come_and_compute)
    )


def _decode_in_bands(
    size: Size, decode: Callable[..., Any], whole: Any, height: int, device: Any, figures: Figures
) -> None:
    """What one of several ranks takes for its rows: the largest band, which lies in the middle."""
    import numpy as np

    from turnout.engines.wan.bands import Rows

    for ranks in (2, 4, 8):
        bands = Rows(0, height).split(ranks)
        rows = max(bands[ranks // 4 :], key=len)
        decode(rows)
        with _peak(device) as peak:
            seconds = seconds_of(lambda rows=rows: decode(rows), size.rounds, wall=True)
        figures.put(f"VAE decode {size.name}, a band of {ranks}, s", EXACT, seconds)
        figures.put(f"VAE decode memory {size.name}, a band of {ranks}, GiB", EXACT, peak[0] / GIB)
        scale = size.height // height
        off = np.abs(decode(rows) - whole[:, rows.begin * scale : rows.end * scale])
        figures.put(f"VAE decode {size.name}, a band of {ranks}, largest difference", EXACT, float(off.max()))


def _encode_beside(size: Size, decode: Callable[[], Any], figures: Figures) -> None:
    """The mp4 of clips that move: alone, beside the decoding of as many frames, and what of it is left when all are decoded."""
    import numpy as np

    try:
        from turnout.engines import mp4
    except ImportError:
        figures.notes.append("No mp4: av is not installed.")
        return
    chance = np.random.default_rng(0)
    wave = np.linspace(0, 12 * np.pi, 2 * size.width)[None, :, None]
    grain = chance.integers(0, 12, (size.height, 2 * size.width, 3), dtype=np.uint8)
    wide = (120 + 100 * np.sin(wave)).astype(np.uint8) + grain
    clips = {
        "grain": np.stack([wide[:, 4 * n : 4 * n + size.width] for n in range(size.frames)]),
        "noise": chance.integers(0, 256, (size.frames, size.height, size.width, 3), dtype=np.uint8),
    }
    for name, clip in clips.items():
        decoded_at = 0.0

        def shown(clip: Any = clip) -> Iterator[Any]:
            nonlocal decoded_at
            frames = iter(clip)
            yield from (next(frames) for part in decode() for _ in part)
            decoded_at = time.monotonic()

        alone_s = seconds_of(lambda clip=clip: mp4.encode(clip, 16), 1, wall=True)
        beside_s = seconds_of(lambda shown=shown: mp4.encode_beside(shown(), 16), 1, wall=True)
        left_s = time.monotonic() - decoded_at
        figures.put(f"mp4 {size.name} alone, {name}, s", EXACT, alone_s)
        figures.put(f"VAE decode {size.name} with the mp4 beside it, {name}, s", EXACT, beside_s)
        figures.put(f"mp4 {size.name} left when all is decoded, {name}, s", EXACT, left_s)


def _load(plan: Plan, figures: Figures, stock: Any) -> None:
    """One expert from files to the device: by threads into pinned buffers, and by safetensors' own load_file."""
    import torch
    from safetensors.torch import load_file

    from turnout.engines.wan.weight_reader import WeightReader

    device = torch.device(plan.device)
    config = {**stock.config, "num_layers": plan.load_blocks}
    with tempfile.TemporaryDirectory(prefix="turnout-wan-bench-") as name:
        folder = Path(name)
        with _first_blocks(stock, plan.load_blocks):
            files = _write_shards(stock, folder, plan.shards)
        for file in files:
            _write_back(file)
        size = sum(file.stat().st_size for file in files)
        began = time.monotonic()
        reader = WeightReader(device)
        figures.put("load: make pinned buffers once, s", EXACT, time.monotonic() - began)

        def by_load_file(some: list[Path]) -> float:
            began = time.monotonic()
            kept = [load_file(file, device=plan.device) for file in some]
            synchronize(device)
            seconds = time.monotonic() - began
            del kept
            return sum(file.stat().st_size for file in some) / seconds / 1e9

        def by_reader() -> float:
            began = time.monotonic()
            expert = _read_expert(folder, config, device, getattr(torch, plan.dtype), reader)
            synchronize(device)
            seconds = time.monotonic() - began
            del expert
            return size / seconds / 1e9

        figures.put("load from the page cache, GB/s", STOCK, by_load_file(files))
        figures.put("load from the page cache, GB/s", EXACT, sorted(by_reader() for _ in range(3))[1])
        for file in files:
            _drop_from_cache(file)
        figures.put("load from disk, GB/s", EXACT, by_reader())
        for file in files:
            _drop_from_cache(file)
        figures.put("load from disk, GB/s", STOCK, by_load_file(files[:2]))
        figures.notes.append(
            f"Loaded: {plan.load_blocks} blocks of an expert, {size / 1e9:.1f} GB, header to ready module."
        )


def _write_shards(stock: Any, folder: Path, shards: int) -> list[Path]:
    from safetensors.torch import save_file

    state = stock.state_dict()
    names = sorted(state)
    per_shard = -(-len(names) // shards)
    parts = {
        f"diffusion_pytorch_model-{n // per_shard + 1:05}.safetensors": names[n : n + per_shard]
        for n in range(0, len(names), per_shard)
    }

    def write(file: str) -> Path:
        save_file({name: state[name].cpu().contiguous() for name in parts[file]}, folder / file)
        return folder / file

    with ThreadPoolExecutor(min(shards, os.cpu_count() or 1)) as pool:
        files = list(pool.map(write, parts))
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    return files


def _read_expert(folder: Path, config: Any, device: Any, dtype: Any, reader: Any) -> Any:
    import torch

    from turnout.engines.sequence import SequenceShare
    from turnout.engines.wan.attention import AttentionKernel, sdpa
    from turnout.engines.wan.block_ops import PlainOps
    from turnout.engines.wan.transformer import Runtime, WanTransformer, read_transformer_shape, weight_map
    from turnout.engines.wan.weight_files import stored_tensors

    shape = read_transformer_shape(config)
    runtime = Runtime(PlainOps(), PlainOps(), AttentionKernel("sdpa", sdpa), SequenceShare())
    with torch.device("meta"):
        expert = WanTransformer(shape, dtype, runtime)
    expert.to_empty(device=device)
    reader.fill(expert, weight_map(shape.layers), stored_tensors(folder))
    return expert


def _write_back(path: Path) -> None:
    """To the disk, so that nothing is written while reading is measured; the pages stay in memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@contextmanager
def _first_blocks(model: Any, count: int) -> Iterator[None]:
    whole = model.blocks
    model.blocks = whole[:count]
    try:
        yield
    finally:
        model.blocks = whole


@contextmanager
def _without_tf32() -> Iterator[None]:
    import torch

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _peak(device: Any) -> Iterator[list[int]]:
    """Most bytes of the device's memory in use inside, beyond what was in use before."""
    import torch

    most = [0]
    if device.type != "cuda":
        yield most
        return
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    yield most
    most[0] = torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    outcome = _measure(sys.argv[2:] or PARTS)
    print(outcome.text())
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(outcome.as_json(), indent=1) + "\n")
