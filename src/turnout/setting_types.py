"""The kinds of values that settings have, and what is refused of each."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from turnout.store.address_rules import is_server_url


def _server_url(url: str) -> str:
    if url and not is_server_url(url):  # empty, as Compose makes it of an unset variable: none
        raise ValueError("an http or https URL, as https://video.example.com")
    return url


Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SomeSeconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(gt=0)]
Limit: TypeAlias = Annotated[int, Field(ge=0)]
Price: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ServerUrl: TypeAlias = Annotated[str, AfterValidator(_server_url)]
SECRET = {"secret": True}
"""Metadata of a setting that is never shown."""
