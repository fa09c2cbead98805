"""What the page says of whoever runs it: for everybody, before they are in."""

from fastapi import APIRouter
from starlette.responses import Response

from turnout.errors import NotFound
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.people.site_json import FooterShown, SiteShown, TermsShown

router = APIRouter(tags=["login"], responses=documented(500, 503))

_LOGO = "/v1/site/logo"
_LOGO_HEADERS = {
    # Also where somebody opens it alone, it is a picture and nothing else.
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "public, max-age=86400",  # its address has its version
}


@router.get("/v1/site", summary="Who runs this service")
async def show(gateway: GatewayDep) -> SiteShown:
    site = gateway.people.site
    return SiteShown(
        name=site.name,
        logo=None if site.logo is None else f"{_LOGO}?v={site.logo.version}",
        footer=[FooterShown(text=line.text, url=line.url) for line in site.footer],
        terms=None if site.terms is None else site.terms.id,
    )


@router.get("/v1/site/terms", responses=documented(404), summary="The terms of use")
async def terms(gateway: GatewayDep) -> TermsShown:
    found = gateway.people.site.terms
    if found is None:
        raise NotFound("There are no terms of use here.", code="no_terms")
    return TermsShown(id=found.id, text=found.text)


@router.get(_LOGO, include_in_schema=False)
async def logo(gateway: GatewayDep) -> Response:
    found = gateway.people.site.logo
    if found is None:
        raise NotFound("There is no logo here.", code="no_logo")
    return Response(found.content, media_type=found.type, headers=_LOGO_HEADERS)
