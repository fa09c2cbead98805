"""What the probes of an audit share: a running service, keys of every role, a site that answers or never does, and the account."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from tests.gateways import bearer, picture
from tests.service import Service

PATIENCE_S = 15.0


@dataclass
class Site:
    """Answers /picture and /hook; from other paths nothing ever comes."""

    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        self.asked.append(path)
        if path in ("/picture", "/hook"):
            body = picture()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        else:
            await self.over.wait()
        writer.close()


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made
        made.over.set()


@dataclass
class Account:
    """What was tried in each area, and what did not hold."""

    tried: dict[str, int] = field(default_factory=dict[str, int])
    broken: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def say(self, area: str, probe: str, held: bool, found: object = "") -> None:
        self.tried[area] = self.tried.get(area, 0) + 1
        if not held:
            self.broken.append((area, probe, str(found)[:300]))

    def table(self) -> str:
        rows = ["| area | probes | held |", "| --- | --- | --- |"]
        for area, count in self.tried.items():
            broken = sum(area == one for one, _, _ in self.broken)
            rows.append(f"| {area} | {count} | {count - broken} |")
        rows += [f"NOT HELD  {area}: {probe}: {found}" for area, probe, found in self.broken]
        return "\n".join(rows)


class Scene:
    def __init__(self, service: Service, account: Account) -> None:
        self.service = service
        self.account = account

    def client(self, token: str = "", headers: dict[str, str] | None = None) -> httpx.AsyncClient:
        shown = headers or (bearer(token) if token else {})
        return httpx.AsyncClient(base_url=self.service.url, headers=shown, timeout=PATIENCE_S)

    async def raw(self, sent: bytes) -> tuple[int, bytes]:
        """The status and all else that comes back, until the service closes the connection or says nothing more."""
        host, _, port = self.service.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        said = b""
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(sent)
                while piece := await reader.read(65536):
                    said += piece
                    if b"\r\n\r\n" in said:
                        break
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
        words = said.split(b" ", 2)
        return (int(words[1]) if len(words) > 2 and words[1].isdigit() else 0), said

    async def alive(self) -> bool:
        async with self.client() as http:
            return (await http.get("/health")).status_code == 200

    async def revoke(self, token: str) -> None:
        async with self.client(self.service.api_key) as http:
            key_id = token.removeprefix("tk-").partition(".")[0]
            (await http.delete(f"/v1/keys/{key_id}")).raise_for_status()

    async def session(self, token: str) -> dict[str, str]:
        """The headers of our own page in a browser that this admin's key logged in."""
        async with self.client(token) as http:
            code = (await http.post("/v1/session/codes")).raise_for_status().json()["code"]
        async with self.client(headers={"origin": self.service.url}) as http:
            (await http.post("/v1/session", json={"code": code})).raise_for_status()
            cookies = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
        return {"cookie": cookies, "origin": self.service.url}

    def worker_secret(self) -> str:
        return str(json.loads((self.service.state_dir / "worker" / "identity.json").read_text())["secret"])
