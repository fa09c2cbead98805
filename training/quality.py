"""Judges the shipped weights: draws the held-out prompts on the CPU, reads the clips, prints the table of the bar.

    python -m training.quality [--prompts 200] [--weights src/turnout/weights]

Exits with 1 when anything lies below the bar.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import WanImageToVideoPipeline, WanPipeline

from training.captions import prompts
from training.checker import Verdict, judge, read
from training.draw import draw, pack
from training.fit_vae import psnr
from training.pool import table
from training.recipe import GUIDANCE, STEPS
from training.world import FRAMES, SIDE, Clip

WEIGHTS = Path("src/turnout/weights")
SEED = 77  # not the seed of the prompts that training was watched with
TEXT_LENGTH = 64
BAR = {"colour": 95.0, "shape": 85.0, "motion": 90.0, "background": 95.0}
FRAME_0_DB = 28.0
CLIP_S = 20.0


@dataclass(frozen=True, slots=True)
class Settings:
    steps: int = STEPS
    guidance: float = GUIDANCE


def load(folder: Path) -> WanPipeline:
    pipe = WanPipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def paint(pipe: WanPipeline, said: list[str], seed: int, settings: Settings) -> torch.Tensor:
    """Clips [N, T, 3, H, W] in 0..1 from words."""
    return pipe(
        said,
        height=SIDE,
        width=SIDE,
        num_frames=FRAMES,
        num_inference_steps=settings.steps,
        guidance_scale=settings.guidance,
        generator=torch.Generator().manual_seed(seed),
        max_sequence_length=TEXT_LENGTH,
        output_type="pt",
    ).frames


def go_on(
    pipe: WanPipeline, first: torch.Tensor, said: list[str], seed: int, settings: Settings
) -> torch.Tensor:
    """Clips [N, T, 3, H, W] in 0..1 that begin with pictures [N, 3, H, W]."""
    onward = WanImageToVideoPipeline(
        tokenizer=pipe.tokenizer,
        text_encoder=pipe.text_encoder,
        vae=pipe.vae,
        scheduler=pipe.scheduler,
        transformer=pipe.transformer,
        expand_timesteps=True,
    )
    onward.set_progress_bar_config(disable=True)
    # Its own encoding of prompts needs ftfy, which nothing else here does.
    told, empty = pipe.encode_prompt(said, max_sequence_length=TEXT_LENGTH)
    made = [
        onward(
            first[i : i + 1],
            prompt_embeds=told[i : i + 1],
            negative_prompt_embeds=empty[i : i + 1],
            height=SIDE,
            width=SIDE,
            num_frames=FRAMES,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance,
            generator=torch.Generator().manual_seed(seed + i),
            output_type="pt",
        ).frames
        for i in range(len(said))
    ]
    return torch.cat(made)


def verdicts(asked: list[Clip], made: torch.Tensor) -> list[Verdict]:
    return [judge(clip, read(frames, len(clip.things))) for clip, frames in zip(asked, made, strict=True)]


def shown_first(pipe: WanPipeline, first: torch.Tensor) -> torch.Tensor:
    """What the VAE can show of pictures [N, 3, H, W]."""
    with torch.no_grad():
        latents = pipe.vae.encode((first * 2 - 1).unsqueeze(2)).latent_dist.mode()
        return (pipe.vae.decode(latents).sample[:, :, 0] / 2 + 0.5).clamp(0, 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--pictures", type=int, default=40, help="how many prompts to try with a first frame")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--guidance", type=float, default=GUIDANCE)
    args = parser.parse_args()
    settings = Settings(args.steps, args.guidance)
    failed = False

    def report(title: str, scores: dict[str, float]) -> None:
        nonlocal failed
        failed |= any(scores[k] < BAR[k] for k in BAR)
        print(f"{title:62}" + "".join(f"{scores[k]:>11.1f}%" for k in BAR), flush=True)

    print(f"{'':62}" + "".join(f"{k:>12}" for k in BAR))
    print(f"{'bar':62}" + "".join(f"{v:>11.1f}%" for v in BAR.values()))
    for name in ("wan-tiny-t2v", "wan-tiny-ti2v"):
        pipe = load(args.weights / name)
        asked = prompts(args.prompts, SEED)
        found, began = [], time.monotonic()
        for start in range(0, len(asked), args.batch):
            part = asked[start : start + args.batch]
            found += verdicts([c for c, _ in part], paint(pipe, [p for _, p in part], start, settings))
        each = (time.monotonic() - began) / len(asked)
        failed |= each > CLIP_S
        report(f"{name}, words ({len(asked)} prompts, {each:.1f} s each)", table(found))
    asked = asked[: args.pictures]
    clips = [c for c, _ in asked]
    drawn, _ = draw(pack(clips))
    made = go_on(pipe, drawn[:, 0], [p for _, p in asked], 0, settings)
    likeness = psnr(made[:, 0], shown_first(pipe, drawn[:, 0]))
    failed |= likeness < FRAME_0_DB
    report(f"{name}, first frame ({len(asked)}; frame 0 {likeness} dB)", table(verdicts(clips, made)))
    print("below the bar" if failed else "the bar is met")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
