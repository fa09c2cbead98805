"""What HTTP clients are told about errors."""

import json

import pytest

from turnout.error_table import describe, error_body
from turnout.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    Limited,
    Misconfigured,
    NotFound,
    Stale,
    TooLarge,
    TurnoutError,
    Unauthorized,
    Unavailable,
)

SHOWN: list[tuple[TurnoutError, int, str, dict[str, str]]] = [
    (InvalidRequest("no", param="size", code="c"), 400, "invalid_request_error", {}),
    (TooLarge("no"), 413, "invalid_request_error", {}),
    (Unauthorized("no"), 401, "authentication_error", {"www-authenticate": "Bearer"}),
    (Forbidden("no"), 403, "permission_error", {}),
    (NotFound("no"), 404, "not_found_error", {}),
    (Conflict("no"), 409, "conflict_error", {"x-should-retry": "false"}),
    (Limited("no", retry_after_s=2.1), 429, "rate_limit_error", {"retry-after": "3"}),
    (Limited("no", retry_after_s=0.01), 429, "rate_limit_error", {"retry-after": "1"}),
    (Unavailable("no", code="waking"), 503, "server_error", {"retry-after": "2"}),
]


@pytest.mark.parametrize(("err", "status", "kind", "headers"), SHOWN)
def test_an_error_for_callers_is_told_as_it_was_written(
    err: TurnoutError, status: int, kind: str, headers: dict[str, str]
) -> None:
    answer = describe(err)
    assert (answer.status, answer.headers, answer.hidden) == (status, headers, False)
    told = {"message": "no", "type": kind, "param": err.param, "code": err.code}
    assert json.loads(answer.body) == {"error": told}


@pytest.mark.parametrize("err", [TurnoutError("secret"), Stale("secret"), Misconfigured("secret")])
def test_what_went_wrong_inside_is_not_told(err: TurnoutError) -> None:
    answer = describe(err)
    assert (answer.status, answer.headers, answer.hidden) == (500, {}, True)
    assert json.loads(answer.body)["error"]["code"] == "internal_error"
    assert b"secret" not in answer.body


def test_an_unavailable_part_is_named_only_if_it_has_a_code() -> None:
    answer = describe(Unavailable("redis at 10.0.0.1", retry_after_s=7))
    assert (answer.status, answer.headers, answer.hidden) == (503, {"retry-after": "7"}, True)
    assert json.loads(answer.body)["error"]["code"] == "unavailable"
    assert b"redis" not in answer.body


def test_a_message_that_is_no_utf_8_is_told_all_the_same() -> None:
    assert json.loads(error_body("\ud800", "server_error"))["error"]["message"] == "?"
