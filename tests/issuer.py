"""An OpenID Connect issuer for tests: Authlib's own authorization server behind real HTTP, with a page to log in on.

It has discovery, keys, an authorization endpoint with consent, and a token endpoint that checks client, redirect URI, code and
PKCE. `Issuer` lets a test bend what it says."""

# Stubs of Authlib are of an older version than the library.
# pyright: reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false, reportReturnType=false
# pyright: reportIncompatibleVariableOverride=false, reportArgumentType=false, reportCallIssue=false, reportOptionalMemberAccess=false

import asyncio
import html
import json
import os
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from authlib.oauth2.rfc6749 import AuthorizationServer, OAuth2Payload, OAuth2Request, grants
from authlib.oauth2.rfc6749.errors import OAuth2Error
from authlib.oauth2.rfc6749.models import AuthorizationCodeMixin, ClientMixin
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9207 import IssuerParameter
from authlib.oidc.core.grants import OpenIDCode
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tests.pace import Patience
from turnout.tenants.key_rules import Role
from turnout.tenants.tenant_settings import OidcSettings

os.environ.setdefault("AUTHLIB_INSECURE_TRANSPORT", "1")  # it is on loopback

CLIENT, SECRET = "turnout-page", "issuers-secret"
PAGE = """<!doctype html><html lang=en><link rel=icon href="data:,"><title>Test issuer</title><h1>Log in</h1><form method=post>
<label>Who <select name=subject>{options}</select></label>
<button name=answer value=yes>Log in</button> <button name=answer value=no>Refuse</button></form>"""


@dataclass
class Code(AuthorizationCodeMixin):
    """A code that waits to be exchanged."""

    redirect_uri: str
    scope: str
    user: str
    nonce: str | None
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str | None:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


@dataclass
class Issuer:
    """`people` are those who can log in, by subject, with what is claimed of them. `said` changes the discovery document,
    `claims` the tokens; `exchanges` counts those at the token endpoint."""

    url: str = ""
    redirect_uri: str | None = None  # None: any on loopback
    people: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    claims: dict[str, Any] = field(default_factory=dict[str, Any])
    names_itself: bool = True
    exchanges: int = 0
    codes: dict[str, Code] = field(default_factory=dict[str, Code])
    key: RSAKey = field(
        default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
    )

    def settings(self, **more: Any) -> OidcSettings:
        values = {
            "client_id": CLIENT,
            "button": "Test issuer",
            "roles": {"ops": Role.ADMIN},
            "role_claim": "groups",
        }
        return OidcSettings(self.url, **{**values, **more})

    def app(self) -> Starlette:
        server = _Server(self)
        server.register_grant(_Grant, [CodeChallenge(required=True), _IdTokens(self)])
        server.register_extension(_Named(self))
        routes = [
            Route("/.well-known/openid-configuration", self._discovery),
            Route("/jwks", self._jwks),
            Route("/authorize", server.authorize, methods=["GET", "POST"]),
            Route("/token", server.token, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def _discovery(self, request: Request) -> Response:
        document = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": self.names_itself,
        }
        return JSONResponse(document | self.said)

    async def _jwks(self, request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})


class _Client(ClientMixin):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self.client_id = CLIENT

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str | None:
        return None

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        known = self._issuer.redirect_uri
        if known is not None:
            return redirect_uri == known
        return redirect_uri.endswith("/v1/login/oidc/callback") and "//127.0.0.1:" in redirect_uri

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(client_secret, SECRET)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


class _Payload(OAuth2Payload):
    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._lists: defaultdict[str, list[str]] = defaultdict(list)
        for name, value in pairs:
            self._lists[name].append(value)

    @property
    def data(self) -> dict[str, str]:
        return {name: values[-1] for name, values in self._lists.items()}

    @property
    def datalist(self) -> defaultdict[str, list[str]]:
        return self._lists


class _Asked(OAuth2Request):
    def __init__(self, request: Request, form: list[tuple[str, str]]) -> None:
        super().__init__(request.method, str(request.url), headers=dict(request.headers))
        self.headers = {name.title(): value for name, value in request.headers.items()}
        self.payload = _Payload([*request.query_params.multi_items(), *form])
        self._form = dict(form)

    @property
    def form(self) -> dict[str, str]:
        return self._form

    @property
    def args(self) -> dict[str, str]:
        return self.payload.data


class _Server(AuthorizationServer):
    def __init__(self, issuer: Issuer) -> None:
        super().__init__(scopes_supported=["openid", "profile", "email"])
        self.issuer = issuer
        self.register_token_generator(
            "default", BearerTokenGenerator(lambda *_, **__: secrets.token_urlsafe(24))
        )

    def query_client(self, client_id: str) -> _Client | None:
        return _Client(self.issuer) if client_id == CLIENT else None

    def save_token(self, token: Any, request: Any) -> None:
        pass

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: Any) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        content = json.dumps(body) if isinstance(body, dict) else body
        answer = Response(content, status)
        for name, value in headers:
            answer.headers[name] = value
        return _Answer(answer)

    async def authorize(self, request: Request) -> Response:
        form = (
            [(k, str(v)) for k, v in (await request.form()).multi_items()] if request.method == "POST" else []
        )
        asked = _Asked(request, form)
        try:
            grant = self.get_consent_grant(asked)
        except OAuth2Error as err:
            return JSONResponse(dict(err.get_body()), 400)
        if request.method == "GET":
            options = "".join(
                f"<option value={html.escape(subject)}>{html.escape(str(of.get('name', subject)))}</option>"
                for subject, of in self.issuer.people.items()
            )
            return HTMLResponse(PAGE.format(options=options))
        said = dict(form)
        user = said.get("subject") if said.get("answer") == "yes" else None
        return self.create_authorization_response(asked, grant_user=user, grant=grant).answer

    async def token(self, request: Request) -> Response:
        self.issuer.exchanges += 1
        form = [(k, str(v)) for k, v in (await request.form()).multi_items()]
        return self.create_token_response(_Asked(request, form)).answer


class _Answer:
    """What Authlib's extensions expect of a response."""

    def __init__(self, answer: Response) -> None:
        self.answer = answer

    @property
    def location(self) -> str | None:
        return self.answer.headers.get("location")

    @location.setter
    def location(self, value: str) -> None:
        self.answer.headers["location"] = value


class _Grant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]  # noqa: RUF012

    def save_authorization_code(self, code: str, request: Any) -> None:
        data = request.payload.data
        self.server.issuer.codes[code] = Code(
            data["redirect_uri"],
            data["scope"],
            str(request.user),
            data.get("nonce"),
            data["code_challenge"],
            data["code_challenge_method"],
        )

    def query_authorization_code(self, code: str, client: Any) -> Code | None:
        return self.server.issuer.codes.get(code)

    def delete_authorization_code(self, authorization_code: Code) -> None:
        codes = self.server.issuer.codes
        for code in [code for code, found in codes.items() if found is authorization_code]:
            del codes[code]

    def authenticate_user(self, authorization_code: Code) -> str:
        return authorization_code.user


class _IdTokens(OpenIDCode):
    def __init__(self, issuer: Issuer) -> None:
        super().__init__(require_nonce=True)
        self._issuer = issuer

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        return any(code.nonce == nonce for code in self._issuer.codes.values())

    def get_client_claims(self, client: Any) -> dict[str, Any]:
        return {"iss": self._issuer.url}

    def get_client_algorithm(self, client: Any) -> str:
        return "RS256"

    def get_encode_header(self, client: Any) -> dict[str, str]:
        return {"alg": "RS256", "kid": "k1"}

    def resolve_client_private_key(self, client: Any) -> RSAKey:
        return self._issuer.key

    def generate_user_info(self, user: str, scope: str) -> dict[str, Any]:
        return {"sub": user, **self._issuer.people.get(user, {}), **self._issuer.claims}


class _Named(IssuerParameter):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    def __call__(self, server: Any) -> "_Named":
        super().__call__(server)
        return self

    def get_issuer(self) -> str | None:
        return self._issuer.url if self._issuer.names_itself else None


@contextmanager
def running_issuer(**people: dict[str, Any]) -> Iterator[Issuer]:
    """On a free port of loopback, in a thread of its own: tests may block their own loop."""
    issuer = Issuer(people=dict(people))
    config = uvicorn.Config(issuer.app(), "127.0.0.1", 0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="issuer", daemon=True)
    thread.start()
    patience = Patience(30)
    while not server.started:
        assert not patience.lost and thread.is_alive(), "the issuer did not start"
        time.sleep(0.01)
    issuer.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield issuer
    finally:
        server.should_exit = True
        thread.join(10)


def consent(url: str, subject: str | None) -> tuple[str, str]:
    """What a person's browser sends from the issuer's page: (the URL, the form)."""
    return url, urlencode({"subject": subject or "", "answer": "no" if subject is None else "yes"})
