"""The foreign classes that Wan's files are made and converted with; rendering needs none of them. As Any: their annotations are too
loose for a strict checker."""

from typing import Any, cast

import diffusers
import transformers

WanTransformer3DModel: Any = cast("Any", diffusers).WanTransformer3DModel

T5TokenizerFast: Any = cast("Any", transformers).T5TokenizerFast
UMT5Config: Any = cast("Any", transformers).UMT5Config
UMT5EncoderModel: Any = cast("Any", transformers).UMT5EncoderModel


def hush() -> None:
    """No progress bars: a rank's output is a log, where they are noise."""
    cast("Any", transformers).utils.logging.disable_progress_bar()
