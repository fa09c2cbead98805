"""Contact sheets (a row a clip, a column a moment) and clips, made from the shipped weights.

    python -m training.sheet OUT [--weights DIR]

writes OUT/clip-<n>.webp, which move, and OUT/everyday-en.webp and everyday-zh.webp, the first twenty prompts of the bar of
everyday wordings in each language.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image

PROMPTS = (
    "a red circle moving to the right on a white background",
    "蓝色背景上一颗黄色的星星在旋转",
    "a cyan ring moving left above an orange cross spinning on black",
    "the sun is rising",
    "夜空中的烟花",
    "a rocket lifts off",
)
ONWARD = "the circle moves down"
SHOWN = 20  # of each language


def save_sheet(path: Path, clips: list[torch.Tensor], columns: int = 6) -> None:
    """Clips [T, 3, H, W] in 0..1 as one picture."""
    rows = []
    for clip in clips:
        moments = torch.linspace(0, len(clip) - 1, columns).round().long()
        row = torch.cat(list(clip[moments.to(clip.device)].float().cpu()), dim=-1)
        rows.append((row.clamp(0, 1) * 255).round().byte())
    Image.fromarray(torch.cat(rows, dim=-2).permute(1, 2, 0).numpy()).save(path)


def save_webp(path: Path, clip: torch.Tensor, fps: int) -> None:
    """A clip [T, 3, H, W] in 0..1 that plays in a page, over and over."""
    frames = (clip.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    first, *rest = (Image.fromarray(frame) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=1000 // fps, loop=0, quality=85, method=6)


def main() -> None:
    from training.everyday import everyday
    from training.shipped import WEIGHTS, Studio, as_png
    from training.world import FPS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    words, pictures = Studio("wan-tiny-t2v", args.weights), Studio("wan-tiny-ti2v", args.weights)
    clips = [words.render(said, seed) for seed, said in enumerate(PROMPTS, 1)]
    clips.append(pictures.render(ONWARD, 1, as_png(clips[0][0])))
    for i, clip in enumerate(clips, 1):
        save_webp(args.out / f"clip-{i}.webp", clip, FPS)
    for language in ("en", "zh"):
        asked = everyday(language)[:SHOWN]
        made = [words.render(said, place) for place, (said, _) in enumerate(asked)]
        save_sheet(args.out / f"everyday-{language}.webp", made, columns=5)


if __name__ == "__main__":
    main()
