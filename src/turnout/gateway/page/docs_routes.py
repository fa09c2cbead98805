"""`/docs`: Swagger UI on our OpenAPI document. Its files come with a package, so a browser loads nothing from elsewhere."""

from functools import cache
from importlib import resources

from fastapi import APIRouter
from starlette.responses import Response

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Turnout API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="api"></div><script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body></html>
"""
_START = """SwaggerUIBundle({ url: "/openapi.json", dom_id: "#api", deepLinking: true, validatorUrl: null });
"""
_HEADERS = {
    # Swagger UI sets styles on its elements, and shows its icons as data.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

router = APIRouter(prefix="/docs", include_in_schema=False)


@cache
def _packaged(name: str) -> bytes:
    return resources.files("fastapi_offline").joinpath("static", name).read_bytes()


@router.get("")
async def page() -> Response:
    return Response(_PAGE, media_type="text/html", headers=_HEADERS)


@router.get("/start.js")
async def start() -> Response:
    return Response(_START, media_type="text/javascript", headers=_HEADERS)


@router.get("/swagger-ui-bundle.js")
async def script() -> Response:
    return Response(_packaged("swagger-ui-bundle.js"), media_type="text/javascript", headers=_HEADERS)


@router.get("/swagger-ui.css")
async def style() -> Response:
    return Response(_packaged("swagger-ui.css"), media_type="text/css", headers=_HEADERS)
