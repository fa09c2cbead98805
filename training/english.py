"""How English says what a clip shows. What stands here is all that training can say: the bar says other things."""

from __future__ import annotations

from training.grammar import Grammar


def _forms(*verbs: str) -> dict[str, tuple[str, ...]]:
    """Verbs as 'third/gerund/bare/past', in four lists."""
    split = [verb.split("/") for verb in verbs]
    return {form: tuple(v[i] for v in split) for i, form in enumerate(("v3", "vg", "vb", "vp"))}


COLOUR = {
    "red": ("red", "red", "red", "red", "bright red", "scarlet", "crimson", "ruby", "cherry red", "fire red", "vivid red"),
    "orange": ("orange", "orange", "orange", "bright orange", "tangerine", "pumpkin orange", "carrot orange"),
    "yellow": ("yellow", "yellow", "yellow", "bright yellow", "golden", "gold", "lemon yellow", "lemon", "sunny yellow"),
    "green": ("green", "green", "green", "bright green", "grass green", "lime green", "lime", "emerald", "leaf green",
              "greenish"),
    "cyan": ("cyan", "cyan", "turquoise", "teal", "aqua", "aqua blue", "blue green", "bright cyan"),
    "blue": ("blue", "blue", "blue", "bright blue", "royal blue", "cobalt blue", "cobalt", "sapphire", "ocean blue",
             "bluish"),
    "purple": ("purple", "purple", "purple", "violet", "lilac", "lavender", "plum", "indigo", "bright purple", "grape purple"),
    "pink": ("pink", "pink", "pink", "hot pink", "rose", "rose pink", "rosy", "magenta", "fuchsia", "bright pink", "pinkish"),
    "white": ("white", "white", "white", "snow white", "pure white", "bright white", "chalk white"),
    "black": ("black", "black", "black", "jet black", "pitch black", "coal black", "pure black"),
    "gray": ("gray", "grey", "gray", "grey", "silver", "ash gray", "greyish", "silver gray"),
    "brown": ("brown", "brown", "brown", "chocolate brown", "chocolate", "coffee brown", "chestnut", "brownish"),
    "dark blue": ("dark blue", "dark blue", "navy blue", "navy", "deep blue", "midnight blue"),
    "light blue": ("light blue", "light blue", "sky blue", "pale blue", "baby blue", "soft blue"),
    "dark green": ("dark green", "dark green", "deep green", "forest green", "bottle green"),
    "dark red": ("dark red", "dark red", "deep red", "maroon", "burgundy", "wine red"),
    "beige": ("beige", "beige", "cream", "tan", "sand colored", "cream colored", "sandy", "ivory"),
}  # fmt: skip
SHAPE = {
    "circle": ("circle", "circle", "circle", "ball", "ball", "disc", "disk", "dot", "sphere", "orb", "round shape", "spot",
               "round thing", "bubble"),
    "square": ("square", "square", "square", "box", "block", "cube", "square shape", "tile", "brick"),
    "triangle": ("triangle", "triangle", "triangle", "triangular shape", "pyramid", "triangle shape", "three sided shape"),
    "star": ("star", "star", "star", "five pointed star", "star shape", "starlet"),
    "heart": ("heart", "heart", "heart", "love heart", "heart shape", "valentine heart", "heart symbol"),
    "ring": ("ring", "ring", "ring", "donut", "doughnut", "hoop", "loop", "hollow circle", "round ring"),
    "cross": ("cross", "cross", "cross", "plus sign", "plus", "plus symbol", "cross shape", "plus shape"),
}  # fmt: skip
SHAPES = {
    "circle": (
        "circles",
        "circles",
        "balls",
        "balls",
        "discs",
        "disks",
        "dots",
        "spheres",
        "orbs",
        "bubbles",
        "spots",
    ),
    "square": ("squares", "squares", "boxes", "blocks", "cubes", "tiles", "bricks"),
    "triangle": ("triangles", "triangles", "pyramids"),
    "star": ("stars", "stars"),
    "heart": ("hearts", "hearts", "love hearts"),
    "ring": ("rings", "rings", "donuts", "doughnuts", "hoops", "loops"),
    "cross": ("crosses", "crosses", "plus signs"),
}
SIZE = {
    "small": ("small", "little", "tiny", "mini", "very small", "wee", "smallish"),
    "medium": ("medium", "medium sized", "mid sized", "normal sized", "average"),
    "large": ("large", "big", "huge", "giant", "great big", "very large", "enormous", "oversized", "massive"),
}
PACE = {
    "slow": ("slowly", "gently", "at a slow pace", "very slowly", "calmly", "softly", "in slow motion", "bit by bit"),
    "steady": ("steadily", "at a steady pace", "evenly", "at an even speed", "smoothly", "at medium speed"),
    "fast": ("quickly", "fast", "rapidly", "at high speed", "swiftly", "very fast", "in a hurry", "speedily", "at full speed"),
    "any": ("smoothly", "nicely", "all the time", "again and again", "continuously", "a bit"),
}  # fmt: skip
PLACE = {
    "top left": ("in the top left corner", "in the upper left corner", "at the top left", "in the upper left"),
    "top": ("at the top", "near the top", "in the upper part", "at the top of the frame", "up high"),
    "top right": ("in the top right corner", "in the upper right corner", "at the top right", "in the upper right"),
    "left side": ("on the left", "on the left side", "at the left edge", "at the left", "on the left hand side"),
    "centre": ("in the center", "in the middle", "at the center", "in the centre", "right in the middle",
               "in the middle of the screen", "centered"),
    "right side": ("on the right", "on the right side", "at the right edge", "at the right", "on the right hand side"),
    "bottom left": ("in the bottom left corner", "in the lower left corner", "at the bottom left", "in the lower left"),
    "bottom": ("at the bottom", "near the bottom", "in the lower part", "at the bottom of the frame", "down low"),
    "bottom right": ("in the bottom right corner", "in the lower right corner", "at the bottom right", "in the lower right"),
}  # fmt: skip

_GO = _forms(
    "moves/moving/move/moved", "moves/moving/move/moved", "slides/sliding/slide/slid", "drifts/drifting/drift/drifted",
    "glides/gliding/glide/glided", "travels/traveling/travel/traveled", "goes/going/go/went", "floats/floating/float/floated",
    "flies/flying/fly/flew", "heads/heading/head/headed", "shifts/shifting/shift/shifted", "rolls/rolling/roll/rolled",
    "runs/running/run/ran", "sails/sailing/sail/sailed", "zooms/zooming/zoom/zoomed", "shoots/shooting/shoot/shot",
    "is moving/moving/be moving/was moving", "makes its way/making its way/make its way/made its way",
)  # fmt: skip
_PUSHED = ("pushed", "pulled", "moved", "dragged", "carried", "sent", "shifted", "blown", "dragged along")
_WAYS = {
    "left": ("left", "to the left", "leftward", "leftwards", "towards the left", "from right to left", "to the left side",
             "to the left edge", "in the left direction", "over to the left", "across the screen to the left",
             "from the right side to the left side", "right to left"),
    "right": ("right", "to the right", "rightward", "rightwards", "towards the right", "from left to right",
              "to the right side", "to the right edge", "in the right direction", "over to the right",
              "across the screen to the right", "from the left side to the right side", "left to right"),
    "up": ("up", "upward", "upwards", "to the top", "from bottom to top", "towards the top", "up to the top",
           "to the upper edge", "straight up", "up into the air", "from the bottom to the top", "bottom to top"),
    "down": ("down", "downward", "downwards", "to the bottom", "from top to bottom", "towards the bottom",
             "down to the bottom", "to the lower edge", "straight down", "down to the ground", "from the top to the bottom",
             "top to bottom"),
}  # fmt: skip
_OWN = {
    "up": _forms("rises/rising/rise/rose", "climbs/climbing/climb/climbed", "ascends/ascending/ascend/ascended",
                 "goes higher/going higher/go higher/went higher", "lifts off/lifting off/lift off/lifted off",
                 "soars/soaring/soar/soared", "rises up/rising up/rise up/rose up"),
    "down": _forms("falls/falling/fall/fell", "sinks/sinking/sink/sank", "drops/dropping/drop/dropped",
                   "descends/descending/descend/descended", "falls down/falling down/fall down/fell down",
                   "goes lower/going lower/go lower/went lower", "comes down/coming down/come down/came down",
                   "drops down/dropping down/drop down/dropped down"),
    "still": _forms("stays still/staying still/stay still/stayed still", "stands still/standing still/stand still/stood still",
                    "does not move/not moving/not move/did not move", "rests/resting/rest/rested",
                    "is still/sitting still/be still/was still", "is motionless/motionless/be motionless/was motionless",
                    "stays put/staying put/stay put/stayed put", "remains in place/remaining in place/remain in place/remained in place",
                    "holds still/holding still/hold still/held still", "doesn't move/that doesn't move/stay/stayed",
                    "is stationary/stationary/be stationary/was stationary", "is not moving/without moving/keep still/kept still",
                    "is static/static/be static/was static", "doesn't move at all/without any motion/rest in place/was at rest",
                    "keeps still/keeping still/stay in place/stayed in place", "is frozen/frozen/freeze/froze",
                    "just sits there/just sitting there/just sit there/just sat there"),
    "growing": _forms("grows/growing/grow/grew", "gets bigger/getting bigger/get bigger/got bigger",
                      "grows larger/growing larger/grow larger/grew larger", "expands/expanding/expand/expanded",
                      "becomes bigger/becoming bigger/become bigger/became bigger", "swells/swelling/swell/swelled",
                      "gets larger and larger/getting larger and larger/get larger and larger/got larger and larger",
                      "increases in size/increasing in size/increase in size/increased in size",
                      "grows bigger and bigger/growing bigger and bigger/grow bigger and bigger/grew bigger and bigger",
                      "scales up/scaling up/scale up/scaled up", "inflates/inflating/inflate/inflated"),
    "shrinking": _forms("shrinks/shrinking/shrink/shrank", "gets smaller/getting smaller/get smaller/got smaller",
                        "becomes smaller/becoming smaller/become smaller/became smaller",
                        "gets smaller and smaller/getting smaller and smaller/get smaller and smaller/got smaller and smaller",
                        "decreases in size/decreasing in size/decrease in size/decreased in size",
                        "contracts/contracting/contract/contracted", "scales down/scaling down/scale down/scaled down",
                        "shrinks down/shrinking down/shrink down/shrank down", "deflates/deflating/deflate/deflated"),
    "spinning": _forms("spins/spinning/spin/spun", "rotates/rotating/rotate/rotated", "turns around/turning around/turn around/turned around",
                       "spins in place/spinning in place/spin in place/spun in place", "is spinning/spinning around/spin around/was spinning",
                       "turns/turning/turn/turned", "twirls/twirling/twirl/twirled", "whirls/whirling/whirl/whirled",
                       "revolves/revolving/revolve/revolved", "spins around its center/spinning around its center/spin around its center/spun around its center",
                       "rotates on the spot/rotating on the spot/rotate on the spot/rotated on the spot",
                       "turns like a wheel/turning like a wheel/turn like a wheel/turned like a wheel"),
    "bouncing": _forms("bounces/bouncing/bounce/bounced", "bounces up and down/bouncing up and down/bounce up and down/bounced up and down",
                       "hops/hopping/hop/hopped", "jumps up and down/jumping up and down/jump up and down/jumped up and down",
                       "jumps/jumping/jump/jumped", "hops up and down/hopping up and down/hop up and down/hopped up and down",
                       "moves up and down/moving up and down/move up and down/moved up and down",
                       "bounces on the ground/bouncing on the ground/bounce on the ground/bounced on the ground"),
    "circling": _forms("moves in a circle/moving in a circle/move in a circle/moved in a circle", "circles around/circling around/circle around/circled around",
                       "orbits/orbiting/orbit/orbited", "goes around in circles/going around in circles/go around in circles/went around in circles",
                       "flies in circles/flying in circles/fly in circles/flew in circles",
                       "orbits the center/orbiting the center/orbit the center/orbited the center",
                       "travels along a circle/traveling along a circle/travel along a circle/traveled along a circle",
                       "moves around in a circle/moving around in a circle/move around in a circle/moved around in a circle",
                       "follows a circular path/following a circular path/follow a circular path/followed a circular path"),
    "pulsing": _forms("pulses/pulsing/pulse/pulsed", "beats/beating/beat/was beating", "throbs/throbbing/throb/throbbed",
                      "grows and shrinks/growing and shrinking/grow and shrink/grew and shrank",
                      "pulsates/pulsating/pulsate/pulsated", "gets bigger and smaller/getting bigger and smaller/get bigger and smaller/got bigger and smaller",
                      "beats like a heart/beating like a heart/beat like a heart/was beating like a heart",
                      "swells and shrinks/swelling and shrinking/swell and shrink/swelled and shrank",
                      "breathes in and out/breathing in and out/breathe in and out/breathed in and out"),
    "shaking": _forms("shakes/shaking/shake/shook", "trembles/trembling/tremble/trembled", "wobbles/wobbling/wobble/wobbled",
                      "jiggles/jiggling/jiggle/jiggled", "vibrates/vibrating/vibrate/vibrated", "shivers/shivering/shiver/shivered",
                      "quivers/quivering/quiver/quivered", "shakes from side to side/shaking from side to side/shake from side to side/shook from side to side",
                      "wiggles/wiggling/wiggle/wiggled", "rattles/rattling/rattle/rattled"),
    "appearing": _forms("appears/appearing/appear/appeared", "fades in/fading in/fade in/faded in", "shows up/showing up/show up/showed up",
                        "comes into view/coming into view/come into view/came into view", "becomes visible/becoming visible/become visible/became visible",
                        "emerges/emerging/emerge/emerged", "appears out of nowhere/appearing out of nowhere/appear out of nowhere/appeared out of nowhere",
                        "gradually appears/gradually appearing/gradually appear/gradually appeared"),
    "vanishing": _forms("disappears/disappearing/disappear/disappeared", "vanishes/vanishing/vanish/vanished", "fades out/fading out/fade out/faded out",
                        "fades away/fading away/fade away/faded away", "becomes invisible/becoming invisible/become invisible/became invisible",
                        "dissolves/dissolving/dissolve/dissolved", "gradually disappears/gradually disappearing/gradually disappear/gradually disappeared",
                        "fades/fading/fade/faded", "melts away/melting away/melt away/melted away"),
    "changing": _forms("turns {colour2}/turning {colour2}/turn {colour2}/turned {colour2}", "becomes {colour2}/becoming {colour2}/become {colour2}/became {colour2}",
                       "changes to {colour2}/changing to {colour2}/change to {colour2}/changed to {colour2}",
                       "changes color to {colour2}/changing color to {colour2}/change color to {colour2}/changed color to {colour2}",
                       "changes into {colour2}/changing into {colour2}/change into {colour2}/changed into {colour2}",
                       "changes its color to {colour2}/changing its color to {colour2}/change its color to {colour2}/changed its color to {colour2}",
                       "fades to {colour2}/fading to {colour2}/fade to {colour2}/faded to {colour2}",
                       "shifts color to {colour2}/shifting color to {colour2}/shift color to {colour2}/shifted color to {colour2}"),
}  # fmt: skip


def _verbs() -> dict[str, dict[str, tuple[str, ...]]]:
    out: dict[str, dict[str, tuple[str, ...]]] = {form: {} for form in ("v3", "vg", "vb", "vp")}
    for form, table in out.items():
        for way in _WAYS:
            going = (f"{{go_{form}}} {{way}}",) * 6
            own = _OWN.get(way, {}).get(form, ())
            table[way] = (*going, *own, *own) if len(own) < 6 else (*going, *own)
        for motion, forms in _OWN.items():
            if motion not in _WAYS:
                table[motion] = forms[form]
    return out


_VERBS = _verbs()
MOTION = {  # as a label stands in a list
    "left": (
        "left",
        "to the left",
        "leftward",
        "moving left",
        "goes left",
        "right to left",
        "leftward motion",
    ),
    "right": (
        "right",
        "to the right",
        "rightward",
        "moving right",
        "goes right",
        "left to right",
        "rightward motion",
    ),
    "up": ("up", "upward", "rising", "moving up", "goes up", "upward motion"),
    "down": ("down", "downward", "falling", "moving down", "goes down", "downward motion"),
    "still": ("still", "none", "no motion", "static", "not moving", "stationary", "no movement"),
    "growing": ("growing", "grow", "getting bigger", "scale up"),
    "spinning": ("spinning", "spin", "rotating", "rotation"),
    "shrinking": ("shrinking", "shrink", "getting smaller", "scale down"),
    "bouncing": ("bouncing", "bounce", "hopping", "up and down"),
    "circling": ("circling", "orbiting", "orbit", "in circles"),
    "pulsing": ("pulsing", "pulse", "beating", "heartbeat"),
    "shaking": ("shaking", "shake", "trembling", "wobble"),
    "appearing": ("appearing", "fade in", "appear"),
    "vanishing": ("vanishing", "fade out", "disappear", "fading"),
    "changing": ("turning {colour2}", "to {colour2}", "change to {colour2}"),
}

PLAIN_GROUND = (
    "on {art} {PLAIN}{ground} {GROUND}", "on {art} {PLAIN}{ground} {GROUND}", "against {art} {PLAIN}{ground} {GROUND}",
    "with {art} {PLAIN}{ground} {GROUND}", "over {art} {PLAIN}{ground} {GROUND}", "in front of {art} {PLAIN}{ground} {GROUND}",
    "on {PLAIN}{ground}", "on {ground}", "over {ground}", "against {ground}", "with {ground} behind it",
    "with everything behind it {ground}", "in {art} {ground} room", "in {art} {ground} space", "on {art} {ground} wall",
    "on {art} {ground} sheet of paper", "on {ground} paper", "on {art} {ground} canvas", "on {art} {ground} screen",
    "with {art} {GROUND} in {ground}", "with {art} {GROUND} that is {ground}", "where the {GROUND} is {ground}",
    "surrounded by {ground}", "the {GROUND} is {ground}", "{GROUND} is {ground}", "the {GROUND} being {ground}",
    "{ground} {GROUND}", "{ground} {GROUND}", "{GROUND} {ground}", "{GROUND}: {ground}", "on {art} {GROUND} of {ground}",
    "across {art} {ground} {GROUND}", "in front of {ground}", "on {art} {GROUND} colored {ground}", "while the {GROUND} stays {ground}",
    "everything around it is {ground}", "on {art} {ground} surface", "upon {ground}", "set against {ground}",
)  # fmt: skip
FADED_DOWN = (
    "from {ground} at the top to {ground2} at the bottom", "from {ground} down to {ground2}",
    "{ground} at the top and {ground2} at the bottom", "from top to bottom from {ground} to {ground2}",
    "from {ground} on top to {ground2} below", "{ground} above and {ground2} below", "top {ground} , bottom {ground2}",
    "going from {ground} at the top into {ground2} at the bottom", "{ground} up top fading into {ground2} at the bottom",
    "with {ground} at the top and {ground2} at the bottom",
)  # fmt: skip
FADED_RIGHT = (
    "from {ground} on the left to {ground2} on the right", "{ground} on the left and {ground2} on the right",
    "from left to right from {ground} to {ground2}", "left {ground} , right {ground2}",
    "going from {ground} on the left into {ground2} on the right", "{ground} on the left fading into {ground2} on the right",
    "with {ground} on the left side and {ground2} on the right side",
)  # fmt: skip
FADED = (
    "on a gradient {GROUND} {fade}", "on a {GROUND} fading {fade}", "over a gradient {fade}", "against a {GROUND} that fades {fade}",
    "with a gradient {fade}", "on a {GROUND} that goes {fade}", "the {GROUND} is {fade}", "on a {GROUND} {fade}", "gradient {GROUND} {fade}",
    "the {GROUND} fades {fade}", "on a color gradient {fade}", "{GROUND}: {fade}", "with the {GROUND} {fade}",
)  # fmt: skip

_RULES: dict[str, tuple[str, ...]] = {
    "art": ("a", "a", "the", ""),
    "GROUND": ("background", "background", "background", "background", "backdrop", "bg", "back ground", "screen"),
    "PLAIN": ("", "", "", "", "plain ", "solid ", "flat ", "simple ", "completely "),
    "go_v3": _GO["v3"], "go_vg": _GO["vg"], "go_vb": _GO["vb"], "go_vp": _GO["vp"],
    "PUSHED": _PUSHED,
    "SZ": ("", "", "{size} "),
    # a thing, without its article
    "N": (
        "{SZ}{colour} {shape}", "{SZ}{colour} {shape}", "{SZ}{colour} {shape}", "{SZ}{colour} {shape}", "{SZ}{colour} {shape}",
        "{SZ}{colour} {shape}", "{SZ}{shape} in {colour}", "{SZ}{colour} colored {shape}", "{SZ}{shape} colored {colour}",
        "{colour} {size} {shape}", "{SZ}{shape} of {colour} color", "{SZ}{shape} painted {colour}", "{colour} , {size} {shape}",
        "{SZ}{colour} coloured {shape}", "nice {colour} {shape}", "single {colour} {shape}", "{SZ}{shape} ( {colour} )",
    ),
    "NP": ("a {N}", "a {N}", "a {N}", "a {N}", "a {N}", "one {N}", "the {N}", "{N}", "1 {N}", "this {N}", "some {N}", "a {shape} that is {colour}",
           "a {shape} which is {colour}", "a {SZ}{shape} , {colour} ,", "a {shape} , {size} and {colour} ,", "a single {N}", "my {N}"),
    "DEF": ("the {shape}", "the {colour} {shape}", "it", "that {shape}", "the {N}", "this {shape}", "it", "the thing"),
    "V3": ("{v3}", "{v3}", "{v3}", "{v3}", "{v3} {pace}", "{pace} {v3}"),
    "VG": ("{vg}", "{vg}", "{vg}", "{vg}", "{vg} {pace}", "{pace} {vg}"),
    "VB": ("{vb}", "{vb}", "{vb}", "{vb}", "{vb} {pace}", "{pace} {vb}"),
    "VP": ("{vp}", "{vp}", "{vp} {pace}"),
    "AT": ("{place}",),
    "OPEN": ("a video of", "a clip of", "show", "show me", "please draw", "draw", "an animation of", "here is", "a short video showing",
             "make a video of", "i want to see", "there is", "imagine", "a scene with", "can you draw", "please make", "create", "generate",
             "i would like", "give me", "could you show me", "render", "animate", "let me see", "a picture of", "video :", "i need",
             "hello , please show", "we see", "make", "how about", "what about", "an image of", "the video shows", "in this clip we see"),
    "ASK": ("make", "let", "have", "please let", "please make", "could you make", "can you make", "i want you to make"),
    "WISH": ("i want", "i would like", "we need", "i'd love"),
    "CLOSE": ("nothing else", "minimal style", "simple animation", "flat colors", "high quality", "smooth motion", "two seconds long",
              "cartoon style", "4k", "please", "thanks", "thank you", "no text", "very simple", "hd", "loop", "for my kids", "2 seconds",
              "that's all", "clean look", "flat design", "vector style", "no shadow", "like a cartoon"),
    # one thing, without a background
    "ONE": (
        "{NP} {VG}", "{NP} {VG}", "{NP} {VG}", "{NP} {VG}", "{NP} {V3}", "{NP} {V3}", "{NP} {V3}", "{NP} that {V3}", "{NP} which {V3}",
        "{NP} , {VG}", "{NP} is {VG}", "{VG} {N}", "{VG} , {NP}", "{NP} can be seen {VG}", "{NP} and {DEF} {V3}", "{NP} . {DEF} {V3}",
        "{NP} . {DEF} is {VG}", "{NP} . it {V3}", "{ASK} {NP} {VB}", "{ASK} the {N} {VB}", "{NP} starts to {vb}", "{NP} begins {vg}",
        "{NP} keeps {vg}", "{NP} {VP}", "{NP} should {VB}", "{NP} will {VB}", "{NP} , it {V3}", "watch {NP} {VB}", "see how {NP} {V3}",
        "look , {NP} {VG}", "{WISH} {NP} to {VB}", "{WISH} {NP} that {V3}", "{NP} wants to {vb}", "{NP} slowly starts {vg}",
        "{N} : {motion}", "{N} , {motion}", "{N} {motion}", "{motion} , {N}", "{N} - {motion}", "{N} / {motion}",
        "there is {NP} and it {V3}", "there is {NP} . {DEF} {V3}", "we see {NP} as it {V3}", "what you see is {NP} that {V3}",
        "{shape} , {colour} , {motion}", "{colour} , {shape} , {motion}", "color {colour} , shape {shape} , motion {motion}",
        "shape : {shape} . color : {colour} . motion : {motion}", "{motion} {colour} {shape}", "{NP} while {vg}", "{NP} doing this : {vg}",
        "a {shape} {VG} , the {shape} is {colour}", "a {shape} {VG} , it is {colour}", "a {shape} {V3} . it is {colour}",
        "the {shape} is {colour} and {V3}", "the {shape} is {colour} . it {V3}", "the color of the {shape} is {colour} and it {V3}",
        "{NP} in motion : {motion}", "can a {N} {vb} ?", "why does the {N} {vb} ?", "how would {NP} look {vg} ?",
        "{NP} , and {DEF} {V3}", "{NP} . {VG} .", "{N} . {motion} .",
    ),
    "ONE_PLACED": ("{NP} {AT} {VG}", "{NP} {VG} {AT}", "{NP} {V3} {AT}", "{AT} {NP} {V3}", "{AT} , {NP} {VG}", "{NP} that {V3} {AT}",
                   "{NP} sits {AT} and {V3}", "{NP} {AT} . it {V3}", "{NP} is {AT} and {V3}", "{VG} {AT} : {NP}", "put {NP} {AT} , {motion}",
                   "place {NP} {AT} , it {V3}", "{N} , {AT} , {motion}"),
    "ONE_PUSHED": ("{NP} is {PUSHED} {way}", "{NP} being {PUSHED} {way}", "{NP} gets {PUSHED} {way}", "{NP} {PUSHED} {way}",
                   "{ASK} {NP} be {PUSHED} {way}", "{way} goes {NP}", "{way} moves {NP}", "someone moves {NP} {way}", "move {NP} {way}",
                   "send {NP} {way}", "the wind carries {NP} {way}", "push {NP} {way}", "{NP} on its way {way}", "{NP} , direction {way}",
                   "{NP} with motion {way}", "{NP} in motion {way}", "{NP} crossing the screen {way}", "{NP} crosses the picture {way}",
                   "slide {NP} {way}", "let {NP} fly {way}", "{NP} on a trip {way}"),
    "ONE_CHANGING": ("{NP} changes from {colour} to {colour2}", "a {shape} changes from {colour} to {colour2}", "a {shape} goes from {colour} to {colour2}",
                     "a {shape} turns from {colour} to {colour2}", "a {shape} changing from {colour} to {colour2}", "{shape} , {colour} to {colour2}",
                     "a {shape} fading from {colour} to {colour2}", "a {shape} that is first {colour} and then {colour2}",
                     "a {colour} {shape} and then it is {colour2}", "first {colour} , then {colour2} : a {shape}"),
    # several things
    "N_SAME": ("{count} {colour} {shapes}", "{count} {SZ}{colour} {shapes}", "{count} {shapes} in {colour}", "{count} {colour} colored {shapes}",
               "{count} identical {colour} {shapes}", "{colour} {shapes} , {count} of them ,", "{count} {shapes} that are {colour}"),
    "SAME": ("{N_SAME} {VG}", "{N_SAME} {VB}", "{N_SAME} that {VB}", "{N_SAME} , all {VG}", "{N_SAME} {layout} {VG}", "{N_SAME} {layout} , {motion}",
             "{N_SAME} . they {VB}", "{ASK} {N_SAME} {VB}", "{N_SAME} are {VG}", "{VG} : {N_SAME}", "{N_SAME} {VP}", "{N_SAME} , {motion}",
             "there are {N_SAME} and they {VB}", "{N_SAME} all {VB} together", "{N_SAME} should {VB}"),
    "OVER": ("{over}",), "UNDER": ("{under}",),
    "BOTH": ("both ", "", "", "together ", "at the same time "),
    "TWO_ALIKE": ("{a.NP} {over} {b.NP} , {BOTH}{VG}", "{a.NP} and {b.NP} {BOTH}{VG}", "{a.NP} and {b.NP} {BOTH}{VB}", "{a.NP} and {b.NP} that {BOTH}{VB}",
                  "{a.NP} {over} {b.NP} . they {BOTH}{VB}", "{a.N} and {b.N} , both {motion}", "{a.NP} next to {b.NP} , both {VG}",
                  "{b.NP} {under} {a.NP} , {BOTH}{VG}", "{ASK} {a.NP} and {b.NP} {VB}", "two things {VG} : {a.NP} and {b.NP}"),
    "TWO": ("{a.NP} {a.VG} {over} {b.NP} {b.VG}", "{a.NP} {a.V3} {over} {b.NP} that {b.V3}", "{a.NP} {a.V3} and {b.NP} {b.V3}", "{a.NP} {a.VG} and {b.NP} {b.VG}",
            "{a.NP} {a.V3} while {b.NP} {b.V3}", "{b.NP} {b.VG} {under} {a.NP} {a.VG}", "{b.NP} {b.V3} {under} {a.NP} that {a.V3}",
            "{a.NP} and {b.NP} . the {a.shape} {a.V3} , the {b.shape} {b.V3}", "{a.NP} {over} {b.NP} . the {a.colour} one {a.V3} and the {b.colour} one {b.V3}",
            "{a.NP} {a.V3} . {b.NP} {b.V3}", "{a.NP} , {a.VG} , and {b.NP} , {b.VG}", "{a.N} {a.motion} , {b.N} {b.motion}", "{b.NP} {b.V3} while {a.NP} {a.V3}",
            "{over1} {a.NP} {a.VG} , {over2} {b.NP} {b.VG}", "{over1} there is {a.NP} that {a.V3} , {over2} {b.NP} that {b.V3}",
            "{a.NP} {over1} {a.V3} , {b.NP} {over2} {b.V3}", "the {a.N} {a.V3} , but the {b.N} {b.V3}", "{b.NP} {under} {a.NP} , the {b.shape} {b.V3} and the {a.shape} {a.V3}",
            "two shapes : {a.NP} {a.VG} and {b.NP} {b.VG}", "{a.NP} {a.VG} with {b.NP} {b.VG} {under1}"),
    "THREE": ("{a.NP} {a.VG} , {b.NP} {b.VG} and {c.NP} {c.VG}", "{a.NP} , {b.NP} and {c.NP} : the first {a.V3} , the second {b.V3} , the third {c.V3}",
              "{a.NP} {a.V3} , {b.NP} {b.V3} , {c.NP} {c.V3}", "three things {layout} : {a.NP} {a.VG} , {b.NP} {b.VG} , {c.NP} {c.VG}",
              "{a.NP} {a.VG} , {over} {b.NP} {b.VG} , {over} {c.NP} {c.VG}", "{a.N} {a.motion} , {b.N} {b.motion} , {c.N} {c.motion}"),
    # scenes
    "SCENE": ("{scene}", "{scene}", "{scene}", "{scene_3}", "{scene} , {CLOSE}", "{OPEN} {scene}", "{OPEN} {scene}", "{OPEN} {scene} , {CLOSE}"),
    # a given picture
    "SUBJECT": ("the picture", "the image", "the photo", "this photo", "it", "everything", "the whole picture", "this picture", "my photo", "the drawing",
                "the scene", "the screenshot", "the whole image", "my picture", "the view"),
    "PICTURE": ("{SUBJECT} {V3}", "{SUBJECT} {V3}", "{ASK} {SUBJECT} {VB}", "{SUBJECT} is {VG}", "{SUBJECT} {VG}", "{camera}", "{camera}", "{camera}", "{OPEN} {SUBJECT} {VG}",
                "{SUBJECT} should {VB}", "animate {SUBJECT} , it {V3}", "{SUBJECT} , {motion}", "{motion}", "{SUBJECT} {VP}"),
    # all of one clip
    "SAID": ("{TELL} {BG}", "{TELL} {BG}", "{TELL} {BG}", "{TELL} {BG}", "{TELL} , {BG}", "{TELL} . {BG}", "{BG} , {TELL}", "{BG} . {TELL}", "{BG} : {TELL}", "{BG} {TELL}"),
    "DRESSED": ("{SAID}", "{SAID}", "{SAID}", "{SAID}", "{OPEN} {SAID}", "{OPEN} {SAID}", "{SAID} , {CLOSE}", "{SAID} .", "{SAID} . {CLOSE}", "{OPEN} {SAID} ?",
                "{SAID} !", "{SAID} please"),
    "SPLIT": (
        "{NP} {BG} {VG}", "{NP} , {BG} , {VG}", "{N} , {BG} , {motion}", "{NP} {BG} . {DEF} {V3}", "{NP} {BG} , {VG}", "{NP} {BG} and {DEF} {V3}",
        "{BG} there is {NP} . {DEF} {V3}", "{NP} , {BG} . {DEF} is {VG}", "{N} . {BG} . {motion} .", "{OPEN} {NP} {BG} , {DEF} {V3}", "{NP} {BG} that {V3}",
        "{motion} , {BG} , {N}", "{BG} . {N} . {motion}", "{VG} {BG} , {NP}", "{V3} {BG} : {NP}", "{NP} {BG} , {motion}", "{NP} {BG} , always {VG}",
    ),
    "ONWARD": ("{DEF} {V3}", "it {V3}", "the {shape} {V3}", "{ASK} {DEF} {VB}", "{ASK} it {VB}", "{DEF} is {VG}", "now {DEF} {V3}", "{V3}", "{DEF} should {VB}"),
    "UNMOVED": ("{NP} {BG}", "{NP} {BG}", "{OPEN} {NP} {BG}", "{NP} , {BG}", "{BG} , {NP}", "{N} {BG}", "{N} , {ground} {GROUND}"),
    "BARE": ("{TELL}", "{TELL}", "{OPEN} {TELL}", "{TELL} .", "{TELL} , {CLOSE}", "{TELL} please"),
}  # fmt: skip

SCENE = {
    "sunrise": ("a sunrise", "sunrise", "the sun rising", "a rising sun", "the sun comes up", "sun rising over the hills", "the sun rises over green grass",
                "morning sun coming up", "dawn", "the sun goes up in the morning", "a sun that rises"),
    "sunset": ("a sunset", "sunset", "the sun setting", "the sun goes down", "the sun sets over the sea", "a setting sun", "dusk", "sun sinking into the ocean",
               "evening sun going down"),
    "rain": ("rain", "it is raining", "raindrops falling", "rainy weather", "falling rain", "a rainy day", "heavy rain", "rain drops", "rain coming down"),
    "snowfall": ("snow", "it is snowing", "snowfall", "snowflakes falling", "falling snow", "a snowy night", "snow falling at night", "snowflakes"),
    "snowman": ("a snowman", "snowman", "a snowman with a hat", "a snowman in the snow", "a smiling snowman", "a cute snowman", "a snow man"),
    "face": ("a smiling face", "a smiley", "a happy face", "a face", "a smiley face", "an emoji that smiles", "a smile", "a face with two eyes and a mouth", "emoji"),
    "house": ("a {tone} house", "a house", "a little house", "a house with a roof", "a {tone} home", "a house on the grass", "a cottage", "a {tone} cottage"),
    "boat": ("a boat", "a {tone} boat", "a boat on the waves", "a sailing boat", "a ship on the sea", "a {tone} sailboat on the water", "a sailboat", "a ship"),
    "traffic light": ("a traffic light", "traffic lights", "a traffic light turning from red to green", "a traffic signal", "a traffic light changing", "stop light"),
    "balloons": ("balloons", "three balloons", "balloons rising", "colorful balloons flying up", "balloons in the sky", "party balloons", "floating balloons"),
    "rocket": ("a rocket", "a {tone} rocket", "a rocket taking off", "a rocket launch", "a rocket flying into space", "a {tone} spaceship", "a space ship", "rocket launch"),
    "fireworks": ("fireworks", "{tone} fireworks", "fireworks at night", "a firework", "a {tone} firework exploding", "fireworks in the night sky", "firework explosion"),
    "car": ("a {tone} car", "a car", "a car driving", "a {tone} car driving on the road", "a {tone} car on the street", "an automobile", "a driving {tone} car"),
    "tree": ("a tree", "tree", "a green tree", "a tree in the wind", "a big tree on the meadow", "a tree swaying", "a tree on the grass"),
}  # fmt: skip
SCENE_3 = {
    "sunrise": ("the sun rises", "the sun is coming up", "the sun is rising"),
    "sunset": ("the sun sets", "the sun is going down", "the sun is setting"),
    "rain": ("it rains", "rain falls", "rain is falling"),
    "snowfall": ("it snows", "snow falls", "snow is falling"),
    "snowman": ("a snowman stands in the snow", "there is a snowman"),
    "face": ("a face smiles", "a yellow face is smiling", "somebody smiles at me"),
    "house": ("a {tone} house stands on the grass", "there is a {tone} house", "there is a house"),
    "boat": ("a {tone} boat sails on the sea", "a boat floats on the waves", "a ship sails"),
    "traffic light": ("the traffic light turns green", "a traffic light switches to green"),
    "balloons": ("balloons fly up into the sky", "balloons float away", "balloons rise"),
    "rocket": ("a {tone} rocket takes off", "a rocket flies to the moon", "a rocket lifts off"),
    "fireworks": ("fireworks explode", "{tone} fireworks light up the night", "a firework goes off"),
    "car": ("a {tone} car drives along the road", "a car drives by", "a {tone} car is driving"),
    "tree": ("a tree stands on the grass", "a tree sways in the wind", "there is a tree"),
}  # fmt: skip
CAMERA = {
    "left": (
        "the camera moves right",
        "pan right",
        "camera pans to the right",
        "panning right",
        "slide the picture to the left",
    ),
    "right": (
        "the camera moves left",
        "pan left",
        "camera pans to the left",
        "panning left",
        "slide the picture to the right",
    ),
    "up": ("the camera moves down", "pan down", "tilt down", "camera tilts down", "the camera goes down"),
    "down": ("the camera moves up", "pan up", "tilt up", "camera tilts up", "the camera goes up"),
    "growing": (
        "zoom in",
        "the camera zooms in",
        "zooming in",
        "move closer",
        "the camera comes closer",
        "slow zoom in",
    ),
    "shrinking": (
        "zoom out",
        "the camera zooms out",
        "zooming out",
        "move away",
        "the camera pulls back",
        "slow zoom out",
    ),
    "spinning": (
        "rotate the picture",
        "the camera rolls",
        "turn the picture around",
        "spin the image",
        "rotate it",
    ),
    "shaking": ("camera shake", "shaky camera", "the camera shakes", "an earthquake", "handheld camera"),
    "still": ("do nothing", "a still picture", "freeze frame", "the camera does not move", "nothing moves"),
}

WORDS = {
    "colour": COLOUR, "colour2": COLOUR, "ground": COLOUR | {
        "light blue": (*COLOUR["light blue"], "light blue sky"), "dark blue": (*COLOUR["dark blue"], "night sky"),
    }, "ground2": COLOUR, "tone": COLOUR,
    "shape": SHAPE, "shapes": SHAPES, "size": SIZE, "pace": PACE, "place": PLACE, "motion": MOTION, "way": _WAYS, **_VERBS,
    "scene": SCENE, "scene_3": SCENE_3, "camera": CAMERA,
    "fade": {"down": FADED_DOWN, "right": FADED_RIGHT},
    "BG": {"plain": PLAIN_GROUND, "faded": FADED},
    "count": {"2": ("two", "2", "a pair of", "a couple of"), "3": ("three", "3", "a trio of")},
    "layout": {"stacked": ("on top of each other", "one above the other", "stacked", "in a column", "one below the other"),
               "beside": ("next to each other", "side by side", "in a row", "one beside the other", "in a line")},
    "over": {"stacked": ("above", "over", "on top of", "higher than"), "beside": ("left of", "to the left of", "on the left of")},
    "under": {"stacked": ("below", "under", "underneath", "beneath"), "beside": ("right of", "to the right of", "on the right of")},
    "over1": {"stacked": ("above", "at the top", "on top", "up there"), "beside": ("on the left", "to the left", "on the left side", "at the left")},
    "over2": {"stacked": ("below", "at the bottom", "underneath", "down there"), "beside": ("on the right", "to the right", "on the right side", "at the right")},
    "under1": {"stacked": ("below it", "under it", "underneath"), "beside": ("to its right", "on its right", "at its right side")},
    "TELL": {"one": ("{ONE}",), "placed": ("{ONE_PLACED}",), "pushed": ("{ONE_PUSHED}", "{ONE}", "{ONE}", "{ONE}"), "changing": ("{ONE_CHANGING}", "{ONE}"), "same": ("{SAME}",),
             "alike": ("{TWO_ALIKE}", "{TWO}"), "two": ("{TWO}",), "three": ("{THREE}",)},
}  # fmt: skip
ENGLISH = Grammar(_RULES, WORDS)
