"""Contact sheets (a row a clip, a column a moment) and clips, made from the shipped weights.

    python -m training.sheet OUT [--weights DIR]

writes OUT/contact-sheet.png, each clip's frames under its prompt, and OUT/clip-<n>.webp, which move.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

PROMPTS = (
    "a red circle moving to the right on a white background",
    "a large yellow star spinning on a dark blue background",
    "a green square rising slowly on a background fading from beige at the top to dark red at the bottom",
    "a small white heart getting bigger on a black background",
    "a purple triangle falls quickly against a plain gray backdrop",
    "a cyan ring moving left above an orange cross spinning on black",
)
ONWARD = "the circle moves down"
_TEXT_PX = 20


def save_sheet(path: Path, clips: list[torch.Tensor], columns: int = 6, titles: tuple[str, ...] = ()) -> None:
    """Clips [T, 3, H, W] in 0..1 as a PNG, each under its title where there are titles."""
    rows = []
    for clip in clips:
        moments = torch.linspace(0, len(clip) - 1, columns).round().long()
        row = torch.cat(list(clip[moments.to(clip.device)].float().cpu()), dim=-1)
        rows.append((row.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())
    above = _TEXT_PX if titles else 0
    height, width = rows[0].shape[:2]
    sheet = Image.new("RGB", (width, (height + above) * len(rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for i, row in enumerate(rows):
        top = i * (height + above)
        if titles:
            pen.text((4, top + 3), titles[i], fill="black", font=ImageFont.load_default(12))
        sheet.paste(Image.fromarray(row), (0, top + above))
    sheet.save(path)


def save_webp(path: Path, clip: torch.Tensor, fps: int) -> None:
    """A clip [T, 3, H, W] in 0..1 that plays in a page, over and over."""
    frames = (clip.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    first, *rest = (Image.fromarray(frame) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=1000 // fps, loop=0, quality=85, method=6)


def main() -> None:
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
    save_sheet(
        args.out / "contact-sheet.png", clips, titles=(*PROMPTS, f"from the first picture above: {ONWARD}")
    )


if __name__ == "__main__":
    main()
