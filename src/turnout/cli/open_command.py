"""`turnout open`: the page in a browser, logged in."""

import sys
import webbrowser
from typing import Annotated

import typer

from turnout.cli.formatting import note_of_reach
from turnout.cli.options import Common, with_common


def register(app: typer.Typer) -> None:
    app.command("open")(open_page)


@with_common
def open_page(
    common: Common,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the link, for a browser on another machine.")
    ] = False,
) -> None:
    """Open the page, logged in. Needs an admin's key; others log in on the page with theirs."""
    from turnout.store.address_rules import reachable_url

    with common.client() as client:
        # In the fragment, which browsers send to nobody.
        code = client.call("POST", "v1", "session", "codes")["code"]
        url = client.server.url
    if only_print and client.server.pid is not None:  # found by the address that it has on this machine
        url = reachable_url(common.load().config.gateway.public_url, url)
    link = f"{url}/#code={code}"
    if only_print or not webbrowser.open(link):
        print(link)
        print("It logs a browser in once, within two minutes.", file=sys.stderr)
        if note := note_of_reach(url, "for a browser on another machine"):
            print(note, file=sys.stderr)
