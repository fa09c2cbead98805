"""A JSON text that makes too much work is refused before it is parsed."""

import pytest

from turnout.domain.errors import TooLarge
from turnout.domain.json_bounds import MAX_VALUES, check_values


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * (8 * 2**20) + b"1]",
        b"{" + b",".join(b'"%d":1' % n for n in range(MAX_VALUES + 2)) + b"}",
        b"[" + b"{}," * MAX_VALUES + b"1]",
    ],
)
def test_many_values_are_refused(body: bytes) -> None:
    with pytest.raises(TooLarge) as caught:
        check_values(body)
    assert caught.value.code == "body_too_complex"


@pytest.mark.parametrize(
    "body", [b"{}", b'"' + b"x" * (24 * 2**20) + b'"', b"[" + b"1," * (MAX_VALUES // 2) + b"1]"]
)
def test_few_values_are_fine_however_long(body: bytes) -> None:
    check_values(body)
