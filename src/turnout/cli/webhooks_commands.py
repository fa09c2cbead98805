"""`turnout webhooks`: the secret that signs a tenant's webhooks."""

import json
import sys
from typing import Annotated

import typer

from turnout.cli.formatting import clock_time, one_line
from turnout.cli.options import Common, JsonOption, seconds, with_common


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="The secret that signs your webhooks.")
    secret = typer.Typer(no_args_is_help=True, help="A tenant's own webhook secret.")
    secret.command("rotate")(rotate_webhook_secret)
    group.add_typer(secret, name="secret")
    app.add_typer(group, name="webhooks")


@with_common
def rotate_webhook_secret(
    common: Common,
    tenant: Annotated[
        str | None, typer.Option(help="Whose (default: the key's own; another's needs an admin key).")
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long the old secret signs beside it, as in 24h; 0 ends it at once."
        ),
    ] = "24h",
    as_json: JsonOption = False,
) -> None:
    """Make a new secret. It is shown once."""
    from turnout.cli.server_answers import read
    from turnout.tasks.webhook_json import WebhookSecretShown

    body = {"tenant": tenant, "overlap_s": seconds(overlap, "--overlap")}
    made = common.call("POST", "v1", "webhooks", "secret", body=body)
    if as_json:
        print(json.dumps(made))
        return
    shown = read(WebhookSecretShown, made)
    print(shown.secret)
    print(
        f"This is the only time the secret of {one_line(shown.tenant)} is shown. "
        f"The old one signs beside it until {clock_time(shown.old_until)}.",
        file=sys.stderr,
    )
