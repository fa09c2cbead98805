"""Contact sheets (a row a clip, a column a moment) and clips, made from the shipped weights.

    python -m training.sheet OUT [--weights src/turnout/weights]

writes OUT/contact-sheet.png, prompts beside the frames, and OUT/<model>-<n>.mp4.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageDraw

PROMPTS = (
    "a red circle moving to the right on a white background",
    "a large yellow star spinning on a dark blue background",
    "a green square rising slowly on a background fading from beige at the top to dark red at the bottom",
    "a small white heart getting bigger on a black background",
    "a purple triangle falls quickly against a plain gray backdrop",
    "a cyan ring moving left above an orange cross spinning on black",
)
_TEXT_PX = 18


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
            pen.text((4, top + 3), titles[i], fill="black")
        sheet.paste(Image.fromarray(row), (0, top + above))
    sheet.save(path)


def save_mp4(path: Path, clip: torch.Tensor, fps: int) -> None:
    import av

    frames = (clip.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as file:
        stream = file.add_stream("libx264", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        file.mux(stream.encode())


def main() -> None:
    from training.quality import WEIGHTS, Settings, go_on, load, paint
    from training.world import FPS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    words, pictures = load(args.weights / "wan-tiny-t2v"), load(args.weights / "wan-tiny-ti2v")
    clips = [paint(words, [said], seed, Settings())[0] for seed, said in enumerate(PROMPTS)]
    for i, clip in enumerate(clips):
        save_mp4(args.out / f"wan-tiny-t2v-{i + 1}.mp4", clip, FPS)
    onward = "it moves left"
    clips.append(go_on(pictures, clips[0][:1], [onward], 0, Settings())[0])
    save_mp4(args.out / "wan-tiny-ti2v-1.mp4", clips[-1], FPS)
    save_sheet(
        args.out / "contact-sheet.png", clips, titles=(*PROMPTS, f"from the first frame above: {onward}")
    )


if __name__ == "__main__":
    main()
