"""The ways in, as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel


class LoginButton(BaseModel):
    """`name` is what the issuer is called; empty: "single sign-on"."""

    name: str


class LoginWays(BaseModel):
    """What the login page offers beside keys and invites; null where the operator has not switched it on."""

    object: Literal["login"] = "login"
    oidc: LoginButton | None
