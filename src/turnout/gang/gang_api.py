"""How a gang reaches its service: by HTTP to a gateway, with a token of its own. It holds no other credential.

Whatever hinders a call is Unavailable, and the caller decides how long to try; a right that has ended is Unauthorized. Reports
that come together go in one call. An upload that breaks goes on with the piece that was not sent.
"""

import asyncio
import base64
import hashlib
import json
import secrets
import ssl
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from turnout.errors import NotFound, Stale, Unauthorized, Unavailable
from turnout.tasks.gang_messages import (
    PIECE_BYTES,
    AttemptOver,
    ClaimAnswer,
    ClaimedTask,
    Claiming,
    GangDoor,
    GangEvent,
    GangHolding,
    GangOpening,
    GangTold,
    GivingBack,
    OpenedGang,
    ReportAnswer,
    TaskReport,
    Upload,
    UploadDone,
    UploadPlan,
)
from turnout.tasks.task_rules import State

_M = TypeVar("_M", bound=BaseModel)

_CALL_S = 10.0  # for an answer, besides the time that the gateway is asked to wait
_PIECE_S = 60.0  # without a byte going through
_MAX_ANSWER_BYTES = 2**20
_MAX_REPORTS = 16
_LOST = "attempt_over"


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How a gang's service is reached. With `fingerprints` it must show one of these certificates; `ca_file` has authorities to
    trust besides the system's. `token` is the gang's own."""

    url: str
    token: str = field(repr=False)
    ca_file: str | None = None
    fingerprints: tuple[str, ...] = ()


class GangApi:
    """Calls as one gang. `transport` stands for the network in tests."""

    def __init__(
        self,
        url: str,
        token: str,
        tls: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._token = token
        self._process = secrets.token_hex(8)
        self._store_away = False  # whether the object store cannot be reached from here
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            verify=tls,
            transport=transport,
            timeout=_CALL_S,
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8, keepalive_expiry=60),
            headers={"accept-encoding": "identity"},
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def open_gang(self, opening: GangOpening) -> OpenedGang:
        """With a worker key in place of a gang's token."""
        return await self._call("", self._token, opening, OpenedGang)

    async def claim(self, *, loading: bool, wait_s: float) -> ClaimedTask | None:
        """The next task, as soon as there is one."""
        asked = Claiming(process=self._process, loading=loading, wait_s=wait_s)
        return (await self._call("/claim", self._token, asked, ClaimAnswer, wait_s + _CALL_S)).task

    async def give_back(self, reason: str, *, counts: bool) -> None:
        await self._call("/give-back", self._token, GivingBack(reason=reason[:500], counts=counts))

    async def held(self, open: bool | None = None) -> int:
        """How many tasks the gang holds; with `open` it is closed to new ones, or opened again, before."""
        return (await self._call("/door", self._token, GangDoor(open=open), GangHolding)).held

    async def tell(self, told: GangTold) -> None:
        await self._call("/tell", self._token, told)

    async def leave(self) -> None:
        await self._call("/leave", self._token)

    def attempt(self, task: ClaimedTask) -> "AttemptApi":
        return AttemptApi(self, task.token)

    async def call_attempt(
        self, path: str, token: str, message: BaseModel | None = None, answer: type[_M] | None = None
    ) -> Any:
        with _stale_without_right():
            return await self._call(path, token, message, answer)

    async def _call(
        self,
        path: str,
        token: str,
        message: BaseModel | None = None,
        answer: type[_M] | None = None,
        timeout_s: float = _CALL_S,
    ) -> Any:
        content = b"{}" if message is None else message.model_dump_json().encode()
        headers = {"content-type": "application/json"}
        said = await self.send("POST", path, token, headers, content, timeout_s)
        if answer is None:
            return None
        try:
            return answer.model_validate_json(said.content)
        except ValidationError as err:
            raise Unavailable(
                f"the gateway's answer is not {answer.__name__}: {err.error_count()} errors"
            ) from err

    async def send(
        self,
        method: str,
        path: str,
        token: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        timeout_s: float = _CALL_S,
        max_bytes: int = _MAX_ANSWER_BYTES,
    ) -> httpx.Response:
        """One request, and its answer if that is good. `path` may be a URL of the object store: that gets no token."""
        ours = "://" not in path
        own = {"authorization": f"Bearer {token}"} if ours else {}
        body = bytearray()
        try:
            async with self._client.stream(
                method,
                f"/v1/gangs{path}" if ours else path,
                headers={**headers, **own},
                content=content,
                timeout=timeout_s,
                follow_redirects=True,
            ) as said:
                async for some in said.aiter_bytes():
                    body += some
                    if len(body) > max_bytes:
                        raise Unavailable(f"{path[:60]}: an answer of over {max_bytes} bytes")
        except (httpx.HTTPError, httpx.InvalidURL) as err:
            raise Unavailable(f"{path.partition('?')[0][:100]}: {type(err).__name__}: {err}") from err
        answer = httpx.Response(said.status_code, headers=said.headers, content=bytes(body))
        if said.status_code < 300:
            return answer
        raise _refusal(answer, path.partition("?")[0][:100])

    async def send_piece(
        self, name: str, token: str, number: int, of: int, piece: bytes, plan: UploadPlan
    ) -> None:
        """To the object store where that is reached, else to the gateway."""
        with _stale_without_right():
            await self._send_piece(name, token, number, of, piece, plan)

    async def _send_piece(
        self, name: str, token: str, number: int, of: int, piece: bytes, plan: UploadPlan
    ) -> None:
        if plan.signed is not None and not self._store_away:
            try:
                headers = {"content-type": plan.content_type}
                await self.send("PUT", plan.signed[number], token, headers, piece, _PIECE_S)
                return
            except Unavailable as err:
                if not isinstance(err.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                    raise
                self._store_away = True
        digest = base64.b64encode(hashlib.sha256(piece).digest()).decode()
        headers = {"content-digest": f"sha-256=:{digest}:", "content-type": "application/octet-stream"}
        await self.send("PUT", f"/objects/{name}/{number}?of={of}", token, headers, piece, _PIECE_S)

    async def get_range(self, name: str, token: str, start: int) -> httpx.Response:
        with _stale_without_right():
            return await self._get_range(name, token, start)

    async def _get_range(self, name: str, token: str, start: int) -> httpx.Response:
        headers = {"range": f"bytes={start}-{start + PIECE_BYTES - 1}"}
        path = f"/objects/{name}"
        try:
            query = "?redirect=false" if self._store_away else ""
            return await self.send("GET", path + query, token, headers, b"", _PIECE_S, PIECE_BYTES)
        except Unavailable as err:
            if self._store_away or not isinstance(err.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
            self._store_away = True
            return await self.send(
                "GET", f"{path}?redirect=false", token, headers, b"", _PIECE_S, PIECE_BYTES
            )


class AttemptApi:
    """Calls about one attempt at one task. All raise Stale once the task is no longer this attempt's, or the gang has no right
    any more."""

    def __init__(self, api: GangApi, token: str) -> None:
        self._api = api
        self._token = token
        self._waiting: list[tuple[GangEvent, asyncio.Future[None]]] = []
        self._sending = asyncio.Lock()
        self._sent: dict[str, set[int]] = {}  # pieces by the digest of their object
        self.renewed_at = 0.0  # by the monotonic clock, when a report was last taken

    async def report(self, event: GangEvent) -> None:
        """Returns when it is written. What others report meanwhile goes in the same call."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((event, written))
        async with self._sending:
            if not written.done():
                await self._send_waiting()
        await written

    async def _send_waiting(self) -> None:
        """All that wait, also those whose caller was cancelled: they come before what is reported now."""
        batch, self._waiting = self._waiting[:_MAX_REPORTS], self._waiting[_MAX_REPORTS:]
        try:
            await self._report([event for event, _ in batch])
        except BaseException as err:
            for _, written in batch:
                if not written.done():
                    written.set_exception(err if isinstance(err, Exception) else Unavailable("not sent"))
                    written.exception()  # whoever waits is told; nobody may
            raise
        for _, written in batch:
            if not written.done():
                written.set_result(None)

    async def renew(self) -> None:
        await self._report(())

    async def _report(self, events: Sequence[GangEvent]) -> None:
        told = TaskReport(events=tuple(events))
        answer: ReportAnswer = await self._api.call_attempt("/report", self._token, told, ReportAnswer)
        if answer.stale is not None:
            raise Stale(answer.stale)
        self.renewed_at = time.monotonic()

    async def over(self) -> State | None:
        """In which state the task is now; None: it is gone."""
        answer: AttemptOver = await self._api.call_attempt("/over", self._token, None, AttemptOver)
        return answer.state

    async def put(self, name: str, data: bytes) -> None:
        """Tried again with the same data, it goes on where it broke."""
        digest = hashlib.sha256(data).hexdigest()
        sent = self._sent.setdefault(digest, set())
        plan: UploadPlan = await self._api.call_attempt(
            f"/objects/{name}", self._token, Upload(bytes=len(data)), UploadPlan
        )
        of = -(-len(data) // plan.piece_bytes)
        for number in range(of):
            if number not in sent:
                piece = data[number * plan.piece_bytes : (number + 1) * plan.piece_bytes]
                await self._api.send_piece(name, self._token, number, of, piece, plan)
                sent.add(number)
        done = UploadDone(bytes=len(data), sha256=digest)
        try:
            await self._api.call_attempt(f"/objects/{name}/complete", self._token, done)
        except Unavailable as err:
            if err.code:  # the gateway misses something
                self._sent.pop(digest)
            raise
        self._sent.pop(digest)

    async def get(self, name: str) -> bytes:
        """The `checkpoint`, or the `image` to begin with. Raises NotFound."""
        data = bytearray()
        while True:
            answer = await self._api.get_range(name, self._token, len(data))
            data += answer.content
            size = answer.headers.get("content-range", "").rpartition("/")[2]
            if answer.status_code != 206 or not size.isdigit() or len(data) >= int(size):
                return bytes(data)


@contextmanager
def _stale_without_right() -> Generator[None]:
    try:
        yield
    except Unauthorized as err:
        raise Stale(str(err)) from err


def _refusal(answer: httpx.Response, path: str) -> Exception:
    status, (code, words) = answer.status_code, _error(answer)
    message = f"{path}: {status}: {words}"
    if code == _LOST:
        return Stale(words)
    if status == 404:
        return NotFound(message)
    if (
        status in (401, 403) and code
    ):  # ours; an object store's own refusal of an old URL is worth another try
        return Unauthorized(message)
    return Unavailable(message, code=code or None)


def _error(answer: httpx.Response) -> tuple[str, str]:
    try:
        error: Any = json.loads(answer.content)["error"]
        return str(error["code"]), str(error["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return "", answer.text[:200]
