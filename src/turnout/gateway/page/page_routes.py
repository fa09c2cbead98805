"""Serves the page: `/` and its assets, with the headers that let it load nothing from elsewhere."""

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from turnout.gateway.page.page_bundle import PageBundle, PageFile

_MISSING = (
    "Turnout is running; its page was not built. In a checkout, ./dev page builds it (it needs an npm registry). "
    "The API is described at /docs.\n"
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Vary": "Accept-Encoding",
}

router = APIRouter(include_in_schema=False)
_bundle = PageBundle()


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    file = _bundle.index()
    return PlainTextResponse(_MISSING) if file is None else _answer(request, file)


@router.api_route("/assets/{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    file = _bundle.asset(name)
    if file is None:
        raise HTTPException(404)
    return _answer(request, file)


def _answer(request: Request, file: PageFile) -> Response:
    headers = {
        **_HEADERS,
        "Content-Type": file.type,
        "Cache-Control": "public, max-age=31536000, immutable" if file.immutable else "no-cache",
    }
    accepted = [word.strip() for word in request.headers.get("accept-encoding", "").split(",")]
    if "gzip" in accepted:
        return Response(file.gzipped, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.content, headers=headers)
