"""`turnout models catalogue`: what can be pulled by name."""

import json
from dataclasses import asdict

from turnout.cli.formatting import table
from turnout.cli.options import JsonOption


def list_catalogue(as_json: JsonOption = False) -> None:
    """Models that `turnout models pull` knows by name, with what registers them."""
    from turnout.fleet.catalogue import catalogue

    models = catalogue().models
    if as_json:
        print(json.dumps({name: asdict(one) for name, one in models.items()}))
        return
    rows = [(name, one.repo, f"{one.gigabytes:g}", one.about["en"]) for name, one in models.items()]
    print(table(("NAME", "HUB ID", "GB", "WHAT"), rows))
