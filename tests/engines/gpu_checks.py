# pyright: reportPrivateImportUsage=false
"""What only a GPU can show of the Wan engine: kernels against their twins, attention kernels, whole renders.

CI has no GPU. Run by hand on a machine that has one, with nothing installed but the engine's own needs:

    python tests/engines/gpu_checks.py [NAME…]

Prints a line for each check (or for those named), and exits with 1 when one failed. docs/wan.md says where and when it last passed.
"""

import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from turnout.engines.base import EngineSetup, Parallel
from turnout.engines.contract import whole_clip
from turnout.engines.sequence import SequenceShare
from turnout.engines.wan import attention
from turnout.engines.wan.block_ops import Affine, Modulation, Pending, PerToken, PlainOps, Rows8
from turnout.engines.wan.kernel_rules import FP8_ATTENTION_NEEDS
from turnout.engines.wan.load import choose_ops, make_engine
from turnout.engines.wan.rotary import rotation
from turnout.engines.wan.tiny import make_tiny
from turnout.engines.wan.transformer import (
    Runtime,
    StepTimes,
    TextContext,
    WanTransformer,
    quantise,
    read_transformer_shape,
    weight_map,
)
from turnout.fleet.model_rules import Dtype
from turnout.tasks.video_rules import VideoSpec

SPEC = VideoSpec("a red fox", "blurry", 96, 64, 9, 16, 6, (3.0, 4.0), 5.0, 7)
CUDA = torch.device("cuda")
BF16_ERROR = 6e-3
FP8_ERROR = 0.05


def error(got: torch.Tensor, expected: torch.Tensor) -> float:
    got, expected = got.float().cpu(), expected.float().cpu()
    return float((got - expected).norm() / expected.norm())


def exact(rows: torch.Tensor | Rows8) -> torch.Tensor:
    return rows.values.float() * rows.scales if isinstance(rows, Rows8) else rows


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=CUDA).bfloat16()


def check_add_norm() -> str:
    worst = 0.0
    tokens = 1000
    for width, quantises in ((64, False), (3072, False), (5120, False), (5120, True)):
        ours, twin = choose_ops(CUDA, torch.bfloat16, quantises), PlainOps(quantises)
        x, out = random(tokens, width), random(tokens, width)
        for count in (1, 2, tokens):
            rows = torch.randint(0, 2, (tokens,), device=CUDA) if count == 2 else None
            vectors = torch.randn(count, 6, width, device=CUDA).unbind(1)
            shift, scale, gate = (PerToken(v, rows) for v in vectors[:3])
            affine = Affine(torch.randn(width, device=CUDA), torch.randn(width, device=CUDA))
            for pending in (None, Pending(out), Pending(out, gate)):
                for norm in (Modulation(scale, shift), affine):
                    got, expected = ours.add_norm(x, pending, norm), twin.add_norm(x, pending, norm)
                    assert error(got[0], expected[0]) < 1e-3
                    off = error(exact(got[1]), exact(expected[1]))
                    assert off < (FP8_ERROR if quantises else BF16_ERROR), (width, count, quantises, off)
                    worst = max(worst, 0.0 if quantises else off)
    return f"largest difference {worst:.2%}"


def check_rms_rotate() -> str:
    grid, heads, width = (5, 6, 8), 40, 5120
    qkv, weights = random(240, 3 * width), random(2, width)
    turn = rotation(grid, width // heads, CUDA)
    ours, twin = choose_ops(CUDA, torch.bfloat16, False), PlainOps()
    pairs = [
        *zip(
            ours.rms_rotate(qkv, weights, heads, turn),
            twin.rms_rotate(qkv, weights, heads, turn),
            strict=True,
        ),
        *zip(
            ours.rms_rotate(qkv, weights[:1], heads, None),
            twin.rms_rotate(qkv, weights[:1], heads, None),
            strict=True,
        ),
    ]
    worst = max(error(got, expected) for got, expected in pairs)
    assert worst < BF16_ERROR, worst
    return f"largest difference {worst:.2%}"


def check_quantise_and_gelu() -> str:
    ours, twin = choose_ops(CUDA, torch.bfloat16, True), PlainOps(True)
    x = random(500, 13824)
    for name in ("activate", "gelu"):
        off = error(exact(getattr(ours, name)(x)), exact(getattr(twin, name)(x)))
        assert off < FP8_ERROR, (name, off)
    x, weight, bias = random(500, 512), random(1024, 512), random(1024)
    off = error(ours.linear_gelu(x, weight, bias), twin.linear_gelu(x, weight, bias))
    assert off < BF16_ERROR, off
    return f"GELU in the product's epilogue differs by {off:.2%}"


def check_norm_of_the_decoder() -> str:
    from turnout.engines.wan.fast_decoder import rms_norm_silu, rms_norm_silu_plain

    worst = 0.0
    for shape in ((1, 96, 3, 17, 33), (1, 384, 1, 9, 7), (5, 192, 16, 12), (1, 8, 2, 5, 5)):
        gamma = random(shape[1], *([1] * (len(shape) - 2)))
        for silu in (False, True):
            x = random(*shape)
            worst = max(worst, error(rms_norm_silu(x, gamma, silu), rms_norm_silu_plain(x, gamma, silu)))
    assert worst < BF16_ERROR, worst
    return f"largest difference {worst:.2%}"


def check_attention_kernels() -> str:
    q, k, v = (random(1, 2000, 5, 128) for _ in range(3))
    expected = attention.sdpa(q.float(), k.float(), v.float())
    seen: list[str] = []
    for kernel in attention._fast_kernels(CUDA):
        off = error(kernel.attend(q, k, v), expected)
        assert off < BF16_ERROR, (kernel.name, off)
        seen.append(f"{kernel.name} {off:.2%}")
    return f"{', '.join(seen)}; chosen: {attention.choose_attention(CUDA, torch.bfloat16, 128).name}"


def check_fp8_attention() -> str:
    """Its kernels against their twins, on channels with a mean and with large numbers, and on values that lie among queries and keys."""
    from turnout.engines.wan import fp8_attention as twin
    from turnout.engines.wan import triton_attention as ours

    said: list[str] = []
    for width in (24, 128):
        kernel = attention.choose_fp8_attention(CUDA, torch.bfloat16, width)
        assert kernel is not None, FP8_ATTENTION_NEEDS
        q, k, v = random(2000, 3, 5, width).unbind(1)
        q, k, v = (each[None] for each in (q, k + 3 * random(5, width), v))
        q[..., 3] *= 8
        v += 2
        for (got, mean), (expected, twin_mean) in (
            ((ours.queries8(q), None), (twin.queries8(q), None)),
            ((ours.centred8(k, rotates=True)[0], None), (twin.keys8(k), None)),
            (ours.centred8(v, rotates=False), twin.values8(v)),
        ):
            # A number between two of fp8 may go either way; twins that rounded alike nearly always agree.
            same = float((got.values.view(torch.uint8) == expected.values.view(torch.uint8)).float().mean())
            assert same > 0.99 and error(got.exact(), expected.exact()) < FP8_ERROR, (width, same)
            assert mean is None or twin_mean is None or error(mean, twin_mean[0, 0]) < 1e-3
        got = kernel.attend(q, k, v)
        assert got.equal(kernel.attend(q, k, v)), "twice the same gives other bits"
        exact = attention.sdpa(q.float(), k.float(), v.float())
        off, off_twin = error(got - 2, exact - 2), error(twin.attend(q, k, v) - 2, exact - 2)
        assert off < 1.3 * off_twin + 0.01, (width, off, off_twin)
        said.append(f"{width} wide {off:.2%}, its twin {off_twin:.2%}")
    return f"{kernel.name}, off fp32: {'; '.join(said)}"


def check_transformer() -> str:
    """A small one with real heads, against diffusers in fp32; also with a timestep for each token."""
    from diffusers import WanTransformer3DModel

    config: dict[str, Any] = {
        "num_attention_heads": 4,
        "attention_head_dim": 128,
        "ffn_dim": 1024,
        "num_layers": 3,
        "text_dim": 64,
    }
    torch.manual_seed(0)
    stock: Any = WanTransformer3DModel(**config).eval()
    shape = read_transformer_shape(dict(stock.config))
    latents, text = torch.randn(1, 16, 3, 8, 12), torch.randn(1, 512, 64)
    rows = (torch.arange(3 * 4 * 6) >= 24).long()
    values = torch.tensor([0.0, 700.0])
    out: list[str] = []
    for quantises, limit in ((False, 0.02), (True, 0.1)):
        ops, outer = choose_ops(CUDA, torch.bfloat16, quantises), choose_ops(CUDA, torch.bfloat16, False)
        kernel = attention.choose_attention(CUDA, torch.bfloat16, 128)
        ours = WanTransformer(shape, torch.bfloat16, Runtime(ops, outer, kernel, SequenceShare())).to(CUDA)
        theirs = stock.state_dict()
        for name, parts in weight_map(shape.layers).items():
            parameter = ours.get_parameter(name)
            parameter.data.copy_(torch.cat([theirs[part] for part in parts]).view(parameter.shape))
        if quantises:
            quantise(ours)
        given, words = latents.to(CUDA).bfloat16(), text.to(CUDA).bfloat16()
        for times, theirs_times in (
            (StepTimes(values[1:].to(CUDA)), values[1:]),
            (StepTimes(values.to(CUDA), rows.to(CUDA)), values[rows][None]),
        ):
            expected = stock(given.float().cpu(), theirs_times, words.float().cpu(), return_dict=False)[0]
            off = error(ours(given, times, TextContext(words)), expected)
            assert off < limit, (quantises, off)
            out.append(f"{off:.2%}")
    return f"error against fp32, one time and one a token: {', '.join(out[:2])}; in fp8 {', '.join(out[2:])}"


def render(engine: Any, spec: VideoSpec, image: bytes | None = None) -> Any:
    rendering = engine.begin(spec, image)
    while rendering.step < rendering.of:
        rendering.advance()
    return rendering


def tiny_models(root: Path) -> Iterator[tuple[str, Path]]:
    for kind in ("t2v", "ti2v"):
        path = root / kind
        yield kind, path if path.exists() else make_tiny(kind, path)


def check_renders(root: Path) -> str:
    """The same bytes twice and after a resume; bf16 near fp32; a bf16 checkpoint goes on in fp32."""
    said: list[str] = []
    for kind, weights in tiny_models(root):
        cpu = render(make_engine(EngineSetup(weights, Parallel())), SPEC).latents
        limits: dict[Dtype, float] = {"float32": 1e-2, "bfloat16": 0.2}
        for dtype, limit in limits.items():
            engine = make_engine(EngineSetup(weights, Parallel(), "cuda", dtype))
            first, again = render(engine, SPEC), render(engine, SPEC)
            assert first.latents.equal(again.latents), "two renders differ"
            half = engine.begin(SPEC, None)
            for _ in range(3):
                half.advance()
            kept = half.snapshot()
            resumed = engine.resume(SPEC, kept)
            while resumed.step < resumed.of:
                resumed.advance()
            assert resumed.latents.equal(first.latents), "the resumed render differs"
            off = error(first.latents, cpu)
            assert off < limit, (kind, dtype, off)
            frames = whole_clip(first.decode())
            assert frames is not None and frames.shape == (9, 64, 96, 3)
            said.append(f"{kind} {dtype} {off:.2%}")
            if dtype == "bfloat16":
                other = make_engine(EngineSetup(weights, Parallel(), "cuda", "float32")).resume(SPEC, kept)
                other.advance()
    return "off a CPU's fp32: " + ", ".join(said)


def check_lossy_renders(root: Path) -> str:
    weights = dict(tiny_models(root))["t2v"]
    plain = render(make_engine(EngineSetup(weights, Parallel(), "cuda", "bfloat16")), SPEC).latents
    said: list[str] = []
    lossy: list[dict[str, Any]] = [{"fp8": True}, {"guided_share": 0.75}, {"fp8_attention": True}]
    for given in lossy:
        engine = make_engine(EngineSetup(weights, Parallel(), "cuda", "bfloat16", fp8="fp8" in given))
        spec = replace(SPEC, **given)
        first = render(engine, spec).latents
        assert first.equal(render(engine, spec).latents), f"two renders with {given} differ"
        off = error(first, plain)
        assert 0 < off < 1, (given, off)
        said.append(f"{off:.2%}")
    return "off the exact path (random weights): fp8 {}, guided for 75 % {}, fp8 attention {}".format(*said)


def _rank(rank: int, ranks: int, root: str, layout: dict[str, Any], out: str, apart: bool) -> None:
    store = dist.FileStore(f"{out}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=90))
    with mock.patch.object(socket, "gethostname", lambda: f"machine-{rank if apart else 0}"):
        engine = make_engine(EngineSetup(Path(root) / "t2v", Parallel(**layout), "cuda:0", "float32"))
    assert engine.model.layout.spans_machines == apart
    rendering = render(engine, SPEC)
    torch.save(rendering.latents.cpu(), f"{out}/{rank}.pt")
    frames = whole_clip(rendering.decode())
    if frames is not None:
        torch.save(torch.from_numpy(frames), f"{out}/frames.pt")
    dist.destroy_process_group()


def check_two_ranks_on_one_gpu(root: Path) -> str:
    """Over gloo, since NCCL takes only one rank on a GPU."""
    weights = dict(tiny_models(root))["t2v"]
    rendering = render(make_engine(EngineSetup(weights, Parallel(), "cuda", "float32")), SPEC)
    alone, clip = rendering.latents.cpu(), whole_clip(rendering.decode())
    said: list[str] = []
    for name, layout in {
        "ulysses": {"ulysses": 2},
        "ulysses in pieces": {"ulysses": 2},
        "cfg": {"cfg": 2},
        "ulysses+fsdp": {"ulysses": 2, "fsdp": True},
    }.items():
        with tempfile.TemporaryDirectory() as out:
            mp.spawn(_rank, (2, str(root), layout, out, "in pieces" in name), nprocs=2)
            first, second = (torch.load(f"{out}/{rank}.pt") for rank in range(2))
            frames = torch.load(f"{out}/frames.pt").numpy()
        assert clip is not None and np.abs(frames.astype(int) - clip).max() <= 1, (
            "the bands make another clip"
        )
        assert first.equal(second), "the ranks differ"
        off = error(first, alone)
        assert off < 1e-3, (name, off)
        said.append(f"{name} {off:.4%}")
    return "off one rank: " + ", ".join(said)


def check_bands() -> str:
    """The published VAE's shape, decoded in bands and whole."""
    from diffusers import AutoencoderKLWan

    from turnout.engines.wan.bands import Rows
    from turnout.engines.wan.codec import Codec
    from turnout.engines.wan.fast_decoder import speed_up_decoder

    said: list[str] = []
    for fast in (False, True):
        with CUDA:
            vae: Any = AutoencoderKLWan().eval().requires_grad_(False)
        if fast:
            speed_up_decoder(vae)
        codec = Codec(vae)
        latents = torch.randn(1, 16, 3, 60, 104, device=CUDA)
        whole = np.concatenate(list(codec.decode(latents)))
        for parts in (2, 4):
            bands = [list(codec.decode(latents, rows)) for rows in Rows(0, 60).split(parts)]
            pieced = np.concatenate([np.concatenate(each, axis=1) for each in zip(*bands, strict=True)])
            off = np.abs(whole.astype(int) - pieced)
            assert off.mean() < (1.0 if fast else 0.1), (fast, parts, off.mean())
            said.append(
                f"{'bf16' if fast else 'fp32'} {parts}: {(off > 0).mean():.3%} off, at most {off.max()}"
            )
    return "; ".join(said)


def check_experts_in_turn(root: Path) -> str:
    """With the idle one on the host: the same bits."""
    weights = dict(tiny_models(root))["t2v"]
    said: list[str] = []
    for fp8 in (False, True):
        engine = make_engine(EngineSetup(weights, Parallel(), "cuda", "bfloat16", fp8=fp8))
        alone = render(engine, SPEC).latents
        needed = engine.model.memory_plan().needed_bytes(SPEC.width, SPEC.height, SPEC.frames)
        free = lambda model, needed=needed: needed - 1 + model.memory.away_bytes
        with mock.patch.object(type(engine.model), "free_bytes", free):
            for _ in range(3):
                assert render(engine, SPEC).latents.equal(alone), "an expert came back different"
        assert engine.model.memory.away_bytes > 0
        said.append("fp8" if fp8 else "bf16")
    return "same bits in " + ", ".join(said)


def check_reading(root: Path) -> str:
    weights = dict(tiny_models(root))["t2v"]
    on_gpu = make_engine(EngineSetup(weights, Parallel(), "cuda", "float32")).model.experts[0].state_dict()
    on_cpu = make_engine(EngineSetup(weights, Parallel(), "cpu", "float32")).model.experts[0].state_dict()
    assert all(on_gpu[name].cpu().equal(tensor) for name, tensor in on_cpu.items())
    return f"{len(on_cpu)} parameters with the same bits"


def check_size_too_large(root: Path) -> str:
    from turnout.engines.base import Unrenderable

    engine = make_engine(EngineSetup(dict(tiny_models(root))["t2v"], Parallel(), "cuda", "bfloat16"))
    large = replace(SPEC, width=1024, height=1024, frames=81, steps=1)
    total = torch.cuda.get_device_properties(0).total_memory
    said: list[str] = []
    for planned_bytes in (64 << 20, 1 << 60):
        # The second time the plan is told that all fits, so that memory really runs out.
        with mock.patch.object(type(engine.model), "free_bytes", lambda _, free=planned_bytes: free):
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
            try:
                render(engine, large)
            except Unrenderable as err:
                said.append(str(err))
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
        render(engine, SPEC)
    assert len(said) == 2, "a clip far too large was not refused"
    return f"refused twice, and the next task ran: {said[0]} | {said[1]}"


def main() -> int:
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    failed = 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory(prefix="turnout-gpu-checks-") as folder:
        root = Path(folder)
        checks: list[tuple[str, Callable[[], str]]] = [
            ("add and norm", check_add_norm),
            ("RMS norm and rotation", check_rms_rotate),
            ("quantise and GELU", check_quantise_and_gelu),
            ("norm of the decoder", check_norm_of_the_decoder),
            ("attention kernels", check_attention_kernels),
            ("transformer", check_transformer),
            ("bands", check_bands),
            ("experts in turn", lambda: check_experts_in_turn(root)),
            ("reading", lambda: check_reading(root)),
            ("renders", lambda: check_renders(root)),
            ("fp8 attention", check_fp8_attention),
            ("lossy renders", lambda: check_lossy_renders(root)),
            ("two ranks on one GPU", lambda: check_two_ranks_on_one_gpu(root)),
            ("a size too large", lambda: check_size_too_large(root)),
        ]
        for name, check in checks:
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            try:
                print(f"passed  {name}: {check()}", flush=True)
            except Exception:  # noqa: BLE001 (every check has its turn)
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()[-1800:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
