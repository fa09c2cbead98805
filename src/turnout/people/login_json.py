"""The ways in, as HTTP shows them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from turnout.validation import Body

AcceptedTerms = Annotated[
    str | None,
    Field(max_length=64, description="The id of the terms of use that are accepted, where there are some."),
]


class LoginButton(BaseModel):
    """`name` is what the issuer is called; empty: "single sign-on"."""

    name: str


class GuestOffer(BaseModel):
    """What guests may ask for in a day, and how long they stay."""

    videos: int
    chats: int
    stays_s: int


class GuestLogin(Body):
    """Nothing else is asked of a guest."""

    terms: AcceptedTerms = None


class LoginWays(BaseModel):
    """What the login page offers beside keys and invites; null where the operator has not switched it on."""

    object: Literal["login"] = "login"
    oidc: LoginButton | None
    guests: GuestOffer | None
