"""The foreign classes that Wan is made of. As Any: their annotations are too loose for a strict checker, and one
place that says so is better than a dozen."""

from typing import Any, cast

import diffusers
import transformers

AutoencoderKLWan: Any = cast("Any", diffusers).AutoencoderKLWan
UniPCMultistepScheduler: Any = cast("Any", diffusers).UniPCMultistepScheduler
WanTransformer3DModel: Any = cast("Any", diffusers).WanTransformer3DModel

AutoTokenizer: Any = cast("Any", transformers).AutoTokenizer
T5TokenizerFast: Any = cast("Any", transformers).T5TokenizerFast
UMT5Config: Any = cast("Any", transformers).UMT5Config
UMT5EncoderModel: Any = cast("Any", transformers).UMT5EncoderModel


def hush() -> None:
    """No progress bars: a rank's output is a log, where they are noise."""
    cast("Any", transformers).utils.logging.disable_progress_bar()
