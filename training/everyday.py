"""Prompts as people type them, with what they mean. Written by hand, in wordings that training never shows.

A meaning is `colour shape motion` for each thing, then the background: `red circle left; blue star still | black`, or
`red circle left | black > white down` where the background fades; `red circle changing > blue` where the colour changes.
WATCHED was looked at while the recipe was made. `everyday` is the bar, 150 prompts a language in files beside this one: it was
written apart, and chose nothing.
"""

from __future__ import annotations

from pathlib import Path

from training.world import BACKGROUNDS, COLOURS, MOTIONS, SHAPES, Backdrop, Clip, Thing

WATCHED = (
    ("a black ring standing still on a yellow background", "black ring still | yellow"),
    (
        "Picture this: a tiny scarlet ball rolling off to the left, and all behind it is white",
        "red circle left | white",
    ),
    ("blue star spinnin round on a pink bg pls", "blue star spinning | pink"),
    ("Green background. Orange heart. Beating.", "orange heart pulsing | green"),
    ("would you kindly let a white square sink? make the backdrop navy", "white square down | dark blue"),
    ("purple cross in the middle of a grey screen, getting bigger", "purple cross growing | gray"),
    ("Against pitch black, two red stars are floating upward", "red star up; red star up | black"),
    (
        "the thing I need is a brown triangle shrinking away on a cream backdrop",
        "brown triangle shrinking | beige",
    ),
    ("everything white except a green circle hopping", "green circle bouncing | white"),
    ("a yellow donut, orbiting, dark green behind", "yellow ring circling | dark green"),
    ("a pink plus that shakes like crazy before a black wall", "pink cross shaking | black"),
    ("cyan triangle which changes its color into red, white bg", "cyan triangle changing > red | white"),
    ("a heart in red fades from view on beige", "red heart vanishing | beige"),
    (
        "turquoise squares, three of them, rising over brown",
        "cyan square up; cyan square up; cyan square up | brown",
    ),
    (
        "On the left a red ball falling, on the right a blue box climbing, all on white",
        "red circle down; blue square up | white",
    ),
    ("Rightward. Yellow star. Purple background.", "yellow star right | purple"),
    (
        "is it possible to see a gray circle gliding over to the right in front of red?",
        "gray circle right | red",
    ),
    ("the star is white, the ground is blue, the star turns round", "white star spinning | blue"),
    (
        "An enormous black square is slowly coming into view, sky blue all around",
        "black square appearing | light blue",
    ),
    ("no movement at all: green cross, orange backdrop", "green cross still | orange"),
    ("黄色背景上有一个黑色的圆环静止不动", "black ring still | yellow"),
    ("请画一只红球,从右边一路滚到左边,背景要白的", "red circle left | white"),
    ("粉底上面蓝星星转呀转", "blue star spinning | pink"),
    ("绿色做底,橙色爱心扑通扑通地跳动", "orange heart pulsing | green"),
    ("白方块沉下去了,藏青色背景", "white square down | dark blue"),
    ("灰色屏幕正中有个紫十字,越长越大", "purple cross growing | gray"),
    ("漆黑的背景里,两颗红星星往上飘去", "red star up; red star up | black"),
    ("我要的是褐色三角形缩小,米色背景就好", "brown triangle shrinking | beige"),
    ("除了一个绿球在蹦跳,别处都是白色", "green circle bouncing | white"),
    ("深绿背景前,黄圆环绕着圈飞", "yellow ring circling | dark green"),
    ("粉红加号抖个不停,后面黑黑的", "pink cross shaking | black"),
    ("青色三角渐渐变红色,白背景", "cyan triangle changing > red | white"),
    ("红心慢慢不见,米色底子", "red heart vanishing | beige"),
    ("三个青色方块齐齐上升,棕色背景", "cyan square up; cyan square up; cyan square up | brown"),
    ("左边红球往下掉,右边蓝方块往上升,全都在白底上", "red circle down; blue square up | white"),
    ("朝右走的黄五角星,紫背景", "yellow star right | purple"),
    ("可不可以让灰圆形在红色前面向右滑", "gray circle right | red"),
    ("星星白白的,背景蓝蓝的,星星在旋转", "white star spinning | blue"),
    ("天蓝色当中,黑色大方块逐渐显现出来", "black square appearing | light blue"),
    ("橙色背景,绿十字,完全不动弹", "green cross still | orange"),
)

# Words of the bar that no caption of training holds: other forms of what it says, or nothing that it says at all.
HELD_OUT = {
    "en": ("reddish", "yellowish", "purplish", "whitish", "thingy", "jitters", "enlarging", "dwindling",
           "tumbling", "slidding", "ascent", "larger with time", "leftward bound", "budge",
           "hovering", "creeping", "leaps", "swelling up", "shows itself", "circular track", "whooshing"),
    "zh": ("溜达", "挪", "哆嗦", "隐没", "鼓胀", "没了", "悬停", "现身", "赤红", "黄灿灿", "紫莹莹", "圆溜溜", "歇着", "杵着", "降落", "从天而降",
           "坠落,藏青", "翻落", "打着旋儿", "显露", "漂过", "溜走", "摇摇晃晃", "奔", "蹦呀蹦", "转啊转", "底子", "上头", "当底"),
}  # fmt: skip


def meant(meaning: str) -> Clip:
    """The clip a meaning stands for; where it lies and how big it is says nothing."""
    told, _, behind = meaning.partition("|")
    first, _, rest = (part.strip() for part in behind.partition(">"))
    second, _, fade = rest.rpartition(" ")
    backdrop = Backdrop(first, second or first, fade)
    assert backdrop.first in BACKGROUNDS and backdrop.second in BACKGROUNDS, meaning
    things = []
    for one in told.split(";"):
        thing, _, colour2 = (part.strip() for part in one.partition(">"))
        colour, shape, motion = thing.rsplit(" ", 2)
        assert (
            colour in COLOURS
            and shape in SHAPES
            and motion in MOTIONS
            and (not colour2 or colour2 in COLOURS)
        ), meaning
        things.append(
            Thing(shape, colour, motion, "medium", "steady", 0, 0, 0, 0, 1, 1, 0, (0, 0, 0), None, colour2)
        )
    return Clip(tuple(things), backdrop, ((0, 0, 0), (0, 0, 0)))


def everyday(language: str) -> list[tuple[str, str]]:
    """The bar's prompts, `en` or `zh`, each with its meaning."""
    lines = (Path(__file__).parent / f"everyday_{language}.txt").read_text().splitlines()
    pairs = [line.split(" => ") for line in lines]
    return [(said, meaning) for said, meaning in pairs]
