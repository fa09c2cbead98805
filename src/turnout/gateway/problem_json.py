"""Errors as HTTP shows them, in OpenAI's shape."""

from pydantic import BaseModel


class Problem(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every error has this shape."""

    error: Problem
