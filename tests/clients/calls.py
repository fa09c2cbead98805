"""Tries calls of one client and prints what became of each, a line of JSON for each call. Needs nothing but Python."""

import json
import traceback
from collections.abc import Callable


class Calls:
    """`client` is the name in the table."""

    def __init__(self, client: str) -> None:
        self.client = client

    def __call__(self, call: str, refused: str = "") -> Callable[[Callable[[], object]], None]:
        """Decorates a function that makes the call; it is run at once. `refused`: words of the error that must come."""

        def run(function: Callable[[], object]) -> None:
            try:
                function()
                outcome, why = ("FAILED", "it was not refused") if refused else ("works", "")
            except Exception as err:  # noqa: BLE001 - whatever a client raises
                said = f"{type(err).__name__}: {err}"
                if refused and refused in said:
                    outcome, why = "refused", refused
                else:
                    outcome, why = "FAILED", said[:300]
                    traceback.print_exc()
            told = {"client": self.client, "call": call, "outcome": outcome, "why": why}
            print(json.dumps(told), flush=True)

        return run


def expect(condition: object, what: object = "") -> None:
    if not condition:
        raise ValueError(f"unexpected: {what!r}"[:300])
