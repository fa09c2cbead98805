"""The Wan families: what each can make and its recommended settings. Figures are those of the published models."""

from turnout.domain.video import ImageUse, VideoRules

_P480 = ("832x480", "480x832", "624x624")
_P720 = ("1280x720", "720x1280", "960x960")

FAMILIES: dict[str, VideoRules] = {
    "wan2.2-t2v-a14b": VideoRules(heads=40, sizes=_P480 + _P720, max_frames=121),
    "wan2.2-i2v-a14b": VideoRules(
        heads=40, sizes=_P480 + _P720, image=ImageUse.REQUIRED, shift=5.0, guidance=(3.5, 3.5)
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
    ),
    "wan-tiny-t2v": VideoRules(
        heads=8,
        max_pixels=256 * 256,
        max_frames=65,
        default_size="128x128",
        default_frames=17,
        fps=8,
        steps=20,
        guidance=(4.0, 4.0),
        shift=5.0,
    ),
    "wan-tiny-ti2v": VideoRules(
        heads=8,
        image=ImageUse.OPTIONAL,
        max_pixels=256 * 256,
        max_frames=65,
        default_size="128x128",
        default_frames=17,
        fps=8,
        steps=20,
        guidance=(4.0, 4.0),
        shift=5.0,
    ),
}
