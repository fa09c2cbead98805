"""Logins that are on their way to the issuer and back, in Redis: for minutes, and for one use."""

from dataclasses import dataclass

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_one
from turnout.tenants.key_rules import secret_digest

FLOW_S = 600


@dataclass(frozen=True, slots=True)
class LoginFlow:
    """`nonce` must be in the issuer's token, `verifier` proves that we began the login (PKCE), and only the browser that
    has the secret of which `browser` is the digest may end it. `terms` are what was accepted before."""

    nonce: str
    verifier: str
    browser: str
    terms: str = ""


LOGIN_FLOW = RecordKind[LoginFlow]("login flow", LoginFlow)


class LoginFlowStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def put(self, state: str, flow: LoginFlow) -> None:
        async with translated():
            name = self._link.keys.login_flow(secret_digest(state))
            await self._link.client.set(name, LOGIN_FLOW.dump(flow), ex=FLOW_S)

    async def take(self, state: str) -> LoginFlow | None:
        """It is there once, whoever asks."""
        digest = secret_digest(state)
        async with translated():
            found = await self._link.client.getdel(self._link.keys.login_flow(digest))
        return await read_one(self._link, LOGIN_FLOW, digest, found)
