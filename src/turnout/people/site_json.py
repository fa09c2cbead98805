"""What the page says of whoever runs it, as HTTP shows it."""

from typing import Literal

from pydantic import BaseModel


class FooterShown(BaseModel):
    text: str
    url: str | None


class SiteShown(BaseModel):
    """`logo` is the path of a picture, `terms` names the terms of use that whoever comes in accepts; null where there are none."""

    object: Literal["site"] = "site"
    name: str
    logo: str | None
    footer: list[FooterShown]
    terms: str | None


class TermsShown(BaseModel):
    id: str
    object: Literal["site.terms"] = "site.terms"
    text: str
