"""The video families: what each can make and its recommended settings. Figures are those of the published models. Wan2.2 reads
Chinese as well as English, so prompts for it stay in the language that they are in."""

from dataclasses import replace

from turnout.tasks.video_rules import ImageUse, PromptLanguage, VideoRules

_P480 = ("832x480", "480x832", "624x624")
_P720 = ("1280x720", "720x1280", "960x960")

# Wan's own default, as published with Wan2.2. Roughly: garish, overexposed, static, blurred, subtitles, painting, grey, low
# quality, JPEG artefacts, ugly, mutilated, extra fingers, badly drawn hands and faces, deformed, fused fingers, motionless,
# messy background, three legs, many people in the background, walking backwards.
_NEGATIVE = (
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，最差质量，低质量，JPEG压缩残留，丑陋的，残缺的，"
    "多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画面，杂乱的背景，三条腿，"
    "背景人很多，倒着走"
)

_TINY = VideoRules(
    heads=8,
    head_dim=24,
    prompt_language=PromptLanguage.ENGLISH,
    max_pixels=256 * 256,
    max_frames=65,
    default_size="128x128",
    default_frames=17,
    fps=8,
    steps=20,
    guidance=(4.0, 4.0),
    shift=5.0,
)

FAMILIES: dict[str, VideoRules] = {
    "wan2.2-t2v-a14b": VideoRules(heads=40, sizes=_P480 + _P720, max_frames=121, negative_prompt=_NEGATIVE),
    "wan2.2-i2v-a14b": VideoRules(
        heads=40,
        sizes=_P480 + _P720,
        image=ImageUse.REQUIRED,
        shift=5.0,
        guidance=(3.5, 3.5),
        negative_prompt=_NEGATIVE,
    ),
    "wan2.2-ti2v-5b": VideoRules(
        heads=24,
        spatial=16,
        sizes=("1280x704", "704x1280"),
        image=ImageUse.OPTIONAL,
        default_size="1280x704",
        default_frames=121,
        fps=24,
        steps=50,
        guidance=(5.0, 5.0),
        shift=5.0,
        negative_prompt=_NEGATIVE,
    ),
    # LTX-Video (2B, 0.9 and later). A shift of 1 stands for its own, which depends on the clip's size.
    "ltx-video": VideoRules(
        heads=32,
        head_dim=64,
        prompt_language=PromptLanguage.ENGLISH,
        spatial=32,
        temporal=8,
        patch=1,
        default_size="704x512",
        default_frames=121,
        max_frames=257,
        fps=25,
        steps=50,
        guidance=(3.0, 3.0),
        shift=1.0,
        negative_prompt="worst quality, inconsistent motion, blurry, jittery, distorted",
    ),
    "wan-tiny-t2v": _TINY,
    "wan-tiny-ti2v": replace(_TINY, image=ImageUse.OPTIONAL),
}
