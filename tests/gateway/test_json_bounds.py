"""A JSON text that makes too much work is refused before it is parsed."""

import time

import pytest
from pydantic_core import from_json

from turnout.errors import TooLarge
from turnout.gateway.json_bounds import PIECE_BYTES, SMALL_JSON_BYTES, JsonWork

MIB = 2**20
DENSE = {
    "lists": b"[],",
    "objects": b"{},",
    "objects in objects": b'{"a":{}},',
    "numbers": b"1,",
    "words": b'"a",',
}
LONG = {
    "escapes": b'"' + b"\\u00e9" * (4 * MIB) + b'"',
    "text that is not ASCII": b'"' + "é".encode() * (12 * MIB) + b'"',
    "keys": b"{" + b",".join(b'"%d":1' % n for n in range(400_000)) + b"}",
}


def check(body: bytes) -> None:
    work = JsonWork()
    for at in range(0, len(body), PIECE_BYTES):
        work.add(body[at : at + PIECE_BYTES])


@pytest.mark.parametrize("body", [*(b"[" + one * (8 * MIB // len(one)) + b"1]" for one in DENSE.values()), *LONG.values()], ids=[*DENSE, *LONG])  # fmt: skip
def test_much_work_is_refused(body: bytes) -> None:
    with pytest.raises(TooLarge) as caught:
        check(body)
    assert caught.value.code == "body_too_complex"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'"' + b"x" * (24 * MIB) + b'"',
        b"[" + b"1," * 200_000 + b"1]",
        b'"' + "漢".encode() * MIB + b'"',
        b'"' + b"\\/AAAAAAA" * (2 * MIB // 9) + b'"',
    ],
)
def test_little_work_is_fine_however_long(body: bytes) -> None:
    check(body)


@pytest.mark.parametrize("one", DENSE.values(), ids=DENSE)
def test_what_passes_takes_a_bounded_time(one: bytes) -> None:
    """The densest text that passes, and the densest small one, which is not looked at. The figure is for people: it is the
    CPU time of one parse."""
    most = 1
    while most < 2**22:
        try:
            check(b"[" + one * (2 * most) + b"1]")
        except TooLarge:
            break
        most *= 2
    for body in (b"[" + one * most + b"1]", b"[" + one * (SMALL_JSON_BYTES // len(one) - 1) + b"1]"):
        began = time.thread_time()
        from_json(body)
        print(f"{len(body)} bytes: {(time.thread_time() - began) * 1000:.1f} ms")
