"""Checks what came from outside against a declared shape, and says what is wrong in our own words. And shows our records in theirs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, model_validator

from turnout.errors import InvalidRequest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Shape = TypeVar("Shape", bound=BaseModel)
WholeSeconds = Annotated[int, BeforeValidator(lambda at: int(at) if isinstance(at, float) else at)]
"""A time as HTTP shows it; records have its fractions."""


class Body(BaseModel):
    """A request's body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class PeerMessage(BaseModel):
    """What parts of the service say to each other. What a newer version adds is ignored: parts are upgraded in any order. Numbers
    are finite and of 64 bits, so that nobody who counts or shows them later can stumble over one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_numbers(cls, values: object) -> object:
        if _has_odd_number(values):
            raise ValueError("has a number that is too large.")
        return values


def _has_odd_number(value: object) -> bool:
    match value:
        case int():
            return value.bit_length() > 63
        case float():
            return not isfinite(value)
        case dict():
            return any(map(_has_odd_number, cast("dict[str, object]", value).values()))
        case list():
            return any(map(_has_odd_number, cast("list[object]", value)))
        case _:
            return False


_MEMBER, _AS_SENT = re.compile(r"<\S+: ('[^']*')>"), r"\1"
"""What Python calls a member of an enum, and its value as callers send it."""
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def validated(shape: TypeAdapter[T], values: object) -> T:
    """The values in their declared shape; raises InvalidRequest that names the first field at fault."""
    try:
        return shape.validate_python(values)
    except ValidationError as err:
        raise invalid(cast("Sequence[Mapping[str, Any]]", err.errors(include_url=False))) from err


def invalid(problems: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """The first of pydantic's complaints in our words; an unknown field comes last, as it explains least."""
    first = min(problems, key=lambda p: p["type"] in UNKNOWN)
    # The place inside a list says little; the name of the field is what the caller wrote.
    names = [part for part in first["loc"] if isinstance(part, str) and part not in ("body", "query", "path")]
    param = ".".join(names) or None
    kind = str(first["type"])
    if kind in UNKNOWN:
        return unknown_parameter(str(param))
    if kind == "missing":
        return InvalidRequest(f"{param} is required.", param, "missing")
    return InvalidRequest(f"{param or 'The body'} {rule(kind, first)}", param, _code(kind))


def unknown_parameter(name: str) -> InvalidRequest:
    return InvalidRequest(f"Unknown parameter: {name}.", name, "unknown_parameter")


def given_twice(name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is given twice.", name, "invalid_value")


def _code(kind: str) -> str:
    wrong_type = kind.endswith("_type") or "parsing" in kind or kind == "int_from_float"
    return "invalid_type" if wrong_type else "invalid_value"


def rule(kind: str, problem: Mapping[str, Any]) -> str:
    """What a field's value must be, to follow its name."""
    context: Mapping[str, Any] = problem.get("ctx") or {}
    match kind:
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            return f"must be {_MEMBER.sub(_AS_SENT, context['expected'])}."
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}."
        case "string_too_long":
            return f"is over {context['max_length']} characters."
        case "greater_than_equal":
            return f"must be at least {context['ge']}."
        case "greater_than":
            return f"must be greater than {context['gt']}."
        case "too_short":
            return f"must have at least {context['min_length']} entries."
        case "too_long":
            return f"must have at most {context['max_length']} entries."
        case "less_than_equal":
            return f"must be at most {context['le']}."
        case "finite_number":
            return "must be a finite number."
        case "model_type" | "model_attributes_type" | "dataclass_type" | "dict_type":
            return "must be an object."
        case "list_type" | "tuple_type":
            return "must be a list."
        case _ if kind.startswith("int"):
            return "must be a whole number."
        case _ if kind.startswith("float"):
            return "must be a number."
        case _ if kind.startswith("string"):
            return "must be text."
        case _:
            return f"is not valid: {problem['msg']}."


def shown_as(shape: type[Shape], record: "DataclassInstance", **more: object) -> Shape:
    """What the shape has of a record, by the names of its fields, and `more`."""
    return shape.model_validate({**asdict(record), **more})


def schema_of(model: type[BaseModel] | TypeAdapter[Any]) -> dict[str, Any]:
    """A JSON schema for the OpenAPI document, with nested models written out in place."""
    schema = model.json_schema() if isinstance(model, TypeAdapter) else model.model_json_schema()
    nested = schema.pop("$defs", {})
    return cast("dict[str, Any]", _inline(schema, nested))


def _inline(node: Any, nested: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        known = cast("dict[str, Any]", node)
        if "$ref" in known:
            return _inline(nested[known["$ref"].rsplit("/", 1)[-1]], nested)
        return {name: _inline(value, nested) for name, value in known.items()}
    if isinstance(node, list):
        return [_inline(item, nested) for item in cast("list[Any]", node)]
    return node
