"""The guard on URLs that users give: nothing inside is reachable, by any spelling, redirect or change of mind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address

import pytest

from turnout.errors import InvalidRequest, TooLarge
from turnout.store.outbound import ANYWHERE, Outbound, Reach, Resolve, is_public, system_resolve
from turnout.tenants.turn_rules import turn_of_other

ME = turn_of_other("me")

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]
ONLY_THIS = Reach(
    lambda address: str(address) == "127.0.0.1", "The URL leads to an address that is not public."
)
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_outside_are_public(address: str) -> None:
    assert is_public(ip_address(address))


async def refused(outbound: Outbound, url: str) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        await outbound.check(url, ME)
    with pytest.raises(InvalidRequest) as again:
        await outbound.get(url, 100, ME)
    assert again.value.code == caught.value.code
    return caught.value.code


@asynccontextmanager
async def guard(resolve: Resolve = system_resolve, *, allow_private: bool = False) -> AsyncIterator[Outbound]:
    outbound = Outbound(allow_private, resolve)
    try:
        yield outbound
    finally:
        await outbound.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:8000/",
        "http://LOCALHOST/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/",
        "http://127.0.0.1:80@127.0.0.1/",
        "http://user@example.com/",
        "http://user:password@example.com/",
        "https://1.1.1.1@127.0.0.1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "redis://localhost/",
        "//example.com/",
        "example.com",
        "http://",
        "http:///path",
        "http://[::1/",
        "http://exa mple.com/",
        "http://a.com:99999/",
        "http://127.0.0.1\\@example.com/",
        "",
        "http://\x00/",
    ],
)
async def test_no_spelling_leads_inside(url: str) -> None:
    async with guard() as outbound:
        assert await refused(outbound, url) == "url_not_allowed"


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["1.1.1.1", "10.0.0.1"]

    async with guard(both) as outbound:
        assert await refused(outbound, "http://two-faced.example/") == "url_not_allowed"


async def test_an_unknown_host_is_unreachable() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    async def nothing(host: str, port: int) -> list[str]:
        return []

    for resolve in (unknown, nothing):
        async with guard(resolve) as outbound:
            assert await refused(outbound, "http://nowhere.example/") == "url_unreachable"


@asynccontextmanager
async def site(answers: dict[str, bytes], seen: list[bytes] | None = None) -> AsyncIterator[int]:
    """A small HTTP server that answers by path, and keeps what it was sent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(head)
        writer.write(
            answers.get(head.split(b" ")[1].decode(), b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def ok(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def redirect(to: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


class Names:
    """A resolver by table, whose answers for a name may change from call to call."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self.table = table
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self.table[host]
        return [answers.pop(0) if len(answers) > 1 else answers[0]]


async def test_a_redirect_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # 127.0.0.1 plays the public internet here; 127.0.0.2 plays the inside.
    monkeypatch.setattr("turnout.store.outbound.PUBLIC", ONLY_THIS)
    async with site({"/r": redirect("http://inside.example/secret"), "/a": ok(b"fine")}) as port:
        names = Names({"outside.example": ["127.0.0.1"], "inside.example": ["127.0.0.2"]})
        async with guard(names) as outbound:
            assert await outbound.get(f"http://outside.example:{port}/a", 100, ME) == b"fine"
            for to in (
                "http://inside.example/secret",
                "ftp://x/",
                "http://u:p@outside.example/",
                "//127.0.0.2/",
            ):
                async with site({"/r": redirect(to)}) as other:
                    with pytest.raises(InvalidRequest) as caught:
                        names.table["127.0.0.2"] = ["127.0.0.2"]
                        await outbound.get(f"http://outside.example:{other}/r", 100, ME)
                    assert caught.value.code == "url_not_allowed"


async def test_rebinding_between_check_and_visit_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.store.outbound.PUBLIC", ONLY_THIS)
    seen: list[bytes] = []
    async with site({"/": ok(b"fine")}, seen) as port:
        names = Names({"rebind.example": ["127.0.0.1", "127.0.0.2"]})
        async with guard(names) as outbound:
            # One lookup a visit, and the connection goes to the address which that lookup gave.
            assert await outbound.get(f"http://rebind.example:{port}/", 100, ME) == b"fine"
            assert names.asked == ["rebind.example"]
            assert f"Host: rebind.example:{port}\r\n".encode().lower() in seen[0].lower()
            # Submission checked it when it was public; at delivery it no longer is.
            with pytest.raises(InvalidRequest) as caught:
                await outbound.post(f"http://rebind.example:{port}/", {}, b"x", ME)
            assert caught.value.code == "url_not_allowed"
            assert len(seen) == 1


async def test_redirects_are_followed_three_times_and_no_more() -> None:
    answers = {f"/{n}": redirect(f"/{n - 1}") for n in range(1, 6)} | {"/0": ok(b"end")}
    async with site(answers) as port, guard(allow_private=True) as outbound:
        assert await outbound.get(f"http://127.0.0.1:{port}/3", 100, ME) == b"end"
        with pytest.raises(InvalidRequest, match="redirects more than 3 times"):
            await outbound.get(f"http://127.0.0.1:{port}/4", 100, ME)


async def test_a_post_follows_no_redirect() -> None:
    seen: list[bytes] = []
    async with (
        site({"/r": redirect("/a"), "/a": ok(b"")}, seen) as port,
        guard(allow_private=True) as outbound,
    ):
        assert await outbound.post(f"http://127.0.0.1:{port}/r", {"x-a": "b"}, b"body", ME) == 302
        assert len(seen) == 1 and b"x-a: b" in seen[0].lower()


async def test_bodies_are_bounded_while_they_stream() -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000
    packed = ok(b"x", "Content-Encoding: gzip")
    async with (
        site({"/big": ok(b"x" * 101), "/endless": endless, "/gz": packed}) as port,
        guard(allow_private=True) as outbound,
    ):
        for path in ("/big", "/endless"):
            with pytest.raises(TooLarge, match="over 100 bytes"):
                await outbound.get(f"http://127.0.0.1:{port}{path}", 100, ME)
        with pytest.raises(InvalidRequest, match="compressed"):
            await outbound.get(f"http://127.0.0.1:{port}/gz", 100, ME)
        with pytest.raises(InvalidRequest, match="The URL answered 404"):
            await outbound.get(f"http://127.0.0.1:{port}/none", 100, ME)


async def test_nobody_listening_and_nonsense_are_unreachable(unused_port: int) -> None:
    async with site({"/odd": b"this is not http\r\n\r\n"}) as port, guard(allow_private=True) as outbound:
        for url in (f"http://127.0.0.1:{unused_port}/", f"http://127.0.0.1:{port}/odd"):
            with pytest.raises(InvalidRequest) as caught:
                await outbound.get(url, 100, ME)
            assert caught.value.code == "url_unreachable"


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.store.outbound.ANYWHERE", replace(ANYWHERE, total_s=0.1))

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with server, guard(allow_private=True) as outbound:
        with pytest.raises(InvalidRequest) as caught:
            await outbound.get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", 100, ME)
        assert caught.value.code == "url_unreachable"


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
