"""How each kind of record in Redis is written and read: JSON, validated on the way in. Pure.

Versions run side by side, and go back. So a version reads what others wrote as far as it can:

- Fields that it does not know are ignored, and fields that are missing have defaults.
- A value that it has no name for (of an enum) becomes what `unknown` says for that field. Where nothing is said, the record
  is a NewerRecord: whoever reads skips it, and it is left as it is.
- `FORMAT` grows when earlier versions could not read a kind any more; what they cannot read then is a NewerRecord, too.
- A key's type never changes: what needs another type gets another name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

T = TypeVar("T")

FORMAT = 1
LEFT_OUT = object()
"""As an unknown value's replacement: the member of a list or set that is dropped."""
_UNNAMED = ("enum", "literal_error", "union_tag_invalid")


class NewerRecord(ValueError):
    """The record was written by a newer version; this one must leave it as it is."""


class RecordKind(Generic[T]):
    def __init__(self, name: str, shape: Any, *, unknown: Mapping[str, object] | None = None) -> None:
        self.name = name
        self._shape: TypeAdapter[T] = TypeAdapter(shape)
        self._unknown = unknown or {}

    def dump(self, value: T) -> bytes:
        data = self._shape.dump_json(value)
        # Maps and lists have no place for it.
        return b'{"format":%d,' % FORMAT + data[1:] if hasattr(value, "__dataclass_fields__") else data

    def load(self, data: bytes) -> T:
        """Raises ValueError for what no version wrote, and NewerRecord."""
        try:
            return self._shape.validate_json(data)
        except ValidationError as err:
            return self._load_other(data, err)

    def _load_other(self, data: bytes, err: ValidationError) -> T:
        document: Any = from_json(data)
        problems = cast("Sequence[Mapping[str, Any]]", err.errors())
        for problem in reversed(
            problems
        ):  # the last members of a list first, so that the others keep their place
            self._replace_unknown(document, problem)
        try:
            return self._shape.validate_json(to_json(document))
        except ValidationError as still:
            left = cast("Sequence[Mapping[str, Any]]", still.errors())
            if all(_is_unnamed(problem) for problem in left):
                where = ".".join(str(part) for part in left[0]["loc"])
                raise NewerRecord(f"{where} has a value that this version does not know") from still
            fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
            written_in = fields.get("format")
            if isinstance(written_in, int) and written_in > FORMAT:
                raise NewerRecord(f"format {written_in} is newer than {FORMAT}") from still
            raise

    def _replace_unknown(self, document: Any, problem: Mapping[str, Any]) -> None:
        names = [part for part in problem["loc"] if isinstance(part, str)]
        if not names or (field := names[-1]) not in self._unknown or not _is_unnamed(problem):
            return
        *path, last = problem["loc"]
        for part in path:
            document = document[part]
        if self._unknown[field] is LEFT_OUT:
            del document[last]
        else:
            document[last] = self._unknown[field]


def _is_unnamed(problem: Mapping[str, Any]) -> bool:
    """Whether a name is all that is wrong."""
    if problem["type"] == "union_tag_invalid":
        return True
    return problem["type"] in _UNNAMED and isinstance(problem["input"], str)
