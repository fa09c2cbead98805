"""The HTTP client: sends requests, returns answers or raises errors of our own tree. It never retries: the caller
decides what to do when the server is away."""

import json
import os
import secrets
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast
from urllib.parse import quote, urlsplit

import httpx
from pydantic import ValidationError

from turnout import __version__, errors
from turnout.cli.options import ServerAddress
from turnout.cli.server_answers import ServerError, VideoAnswer, VideoEvent, VideoPage, read, read_events
from turnout.errors import TurnoutError, Unavailable
from turnout.store.address_rules import is_loopback_name

if TYPE_CHECKING:
    from turnout.cli.chat_stream import ChatPiece

CONNECT_S = 5.0
ANSWER_S = 30.0
_REWRITING_S = 600.0  # the most that a server may wait for its chat model
# Servers send a comment every few seconds on a quiet stream; after this long the connection is taken for dead.
QUIET_S = 45.0
# A chat engine may be silent for minutes over a long prompt; the relay gives up on it sooner than this.
CHAT_QUIET_S = 330.0
PIECE_BYTES = 1 << 16
VIDEOS = ("v1", "videos")

_BY_STATUS: Mapping[int, type[TurnoutError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    415: errors.InvalidRequest,
    422: errors.InvalidRequest,
    429: errors.Limited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}

_NO_STREAM = (404, 405, 406, 501)


class NoServer(Unavailable):
    """Nothing took the connection: the request never arrived."""


class Dropped(Unavailable):
    """The connection broke: the request may or may not have arrived."""


class NotAStream(TurnoutError):
    """The server, or a proxy in front of it, has no event stream; polling still works."""


@dataclass(frozen=True, slots=True)
class VideoOrder:
    """What to submit. `image` is a file; `fields` are sent as they are."""

    fields: Mapping[str, Any]
    image: Path | None = None
    priority: str | None = None


class ApiClient:
    def __init__(self, server: ServerAddress, ca_file: Path | None = None) -> None:
        self.server = server
        headers = {"user-agent": f"turnout-cli/{__version__}"}
        if server.api_key:
            if not (server.api_key.isascii() and server.api_key.isprintable()):
                raise errors.Misconfigured("the API key has characters that no key has; copy it again")
            headers["authorization"] = f"Bearer {server.api_key}"
        self._http = httpx.Client(
            base_url=server.url,
            headers=headers,
            verify=_trusting(ca_file, server.url),
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=not is_loopback_name(
                urlsplit(server.url).netloc
            ),  # a proxy from the environment cannot reach our loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        """An error that leaves through here says what the caller can do."""
        if isinstance(err, errors.Unauthorized):
            err.message += self._about_key()
        elif isinstance(err, errors.NotFound) and err.code == "model_not_found":
            with suppress(TurnoutError):
                known = [str(model["id"]) for model in self.call("GET", "v1", "models")["data"]]
                err.message += f" There are: {', '.join(known)}." if known else " None is registered."
        self._http.close()

    def _about_key(self) -> str:
        if self.server.api_key is None:
            return " Give a key with --key or TURNOUT_API_KEY; an admin makes one with `turnout keys create`."
        head, dot, _ = self.server.api_key.partition(".")
        known_as = f", {head}.…," if dot and head.startswith("tk-") else ""  # its id, which is no secret
        return f" The key that was sent{known_as} is not one of {self.server.url}, or no longer valid."

    def submission(self, order: VideoOrder, idempotency_key: str) -> httpx.Request:
        """The request that `submit` sends; the same object may be sent again, byte for byte."""
        headers = {"idempotency-key": idempotency_key}
        if order.priority:
            headers["x-turnout-priority"] = order.priority
        answer_s = ANSWER_S + _REWRITING_S if order.fields.get("enhance") else ANSWER_S
        timeout = httpx.Timeout(answer_s, connect=CONNECT_S)
        if order.image is None:
            return self._http.build_request(
                "POST", "/v1/videos", json=dict(order.fields), headers=headers, timeout=timeout
            )
        try:
            content = order.image.read_bytes()
        except OSError as err:
            raise errors.InvalidRequest(f"{order.image}: {err.strerror}", "input_reference") from err
        request = self._http.build_request(
            "POST",
            "/v1/videos",
            data={k: v if isinstance(v, str) else json.dumps(v) for k, v in order.fields.items()},
            files={"input_reference": (order.image.name, content)},
            headers=headers,
            timeout=timeout,
        )
        request.read()  # into memory, so that it can be sent again
        return request

    def submit(self, submission: httpx.Request) -> VideoAnswer:
        with self._translated():
            response = self._http.send(submission)
        return read(VideoAnswer, _json(response))

    def call(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        answer_s: float = ANSWER_S,
    ) -> Mapping[str, Any]:
        """One request. Each part of the path is quoted; what is None in `body` or `params` is not sent."""
        with self._translated():
            response = self._http.request(
                method,
                _path(*path),
                params={name: value for name, value in (params or {}).items() if value is not None},
                timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
                **({} if body is None else _body(body)),
            )
        return _json(response)

    def video(self, video_id: str) -> VideoAnswer:
        return read(VideoAnswer, self.call("GET", *VIDEOS, video_id))

    def videos(self, *, limit: int, after: str | None = None) -> VideoPage:
        params = {"limit": limit, "order": "desc", "after": after}
        return read(VideoPage, self.call("GET", *VIDEOS, params=params))

    def cancel(self, video_id: str) -> VideoAnswer:
        return read(VideoAnswer, self.call("POST", *VIDEOS, video_id, "cancel"))

    def events(
        self, video_id: str, last_event_id: str | None, quiet_s: float = QUIET_S
    ) -> Iterator[VideoEvent]:
        """The task's events after `last_event_id`, live. Ends when the server ends it, or after `quiet_s` of silence."""
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=quiet_s)
        path = _path(*VIDEOS, video_id, "events")
        with (
            self._translated(),
            self._http.stream("GET", path, headers=headers, timeout=timeout) as response,
        ):
            if response.status_code == 204:
                return  # the task has ended, and every event was received
            if response.status_code in _NO_STREAM:
                raise NotAStream("no event stream")
            _check_success(response)
            if not _is_event_stream(response):
                raise NotAStream("no event stream")
            try:
                yield from read_events(response)
            except httpx.ReadTimeout:
                return

    def download(self, video_id: str, variant: str, target: Path) -> None:
        """Writes the content beside `target` and renames it when whole, so that no half file is ever there."""
        real = target.resolve()
        if real.exists() and not real.is_file():  # a pipe or /dev/null: nothing to rename over
            with real.open("wb") as sink:
                return self._fetch(video_id, variant, sink)
        part = real.with_name(f".{real.name}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as sink:
                self._fetch(video_id, variant, sink)
                sink.flush()
                os.fsync(sink.fileno())
            part.replace(real)
        finally:
            part.unlink(missing_ok=True)

    def _fetch(self, video_id: str, variant: str, sink: BinaryIO) -> None:
        path, params = _path(*VIDEOS, video_id, "content"), {"variant": variant}
        with (
            self._translated(),
            self._http.stream("GET", path, params=params, follow_redirects=True) as response,
        ):
            _check_success(response)
            sink.writelines(response.iter_bytes(PIECE_BYTES))

    def ready(self) -> Mapping[str, Any]:
        """Also when it is not."""
        with self._translated():
            response = self._http.get("/ready")
        return _json(response) if response.status_code != 503 else response.json()

    def metrics(self) -> str:
        with self._translated():
            response = self._http.get("/metrics")
        _check_success(response)
        return response.text

    def chat_pieces(self, fields: Mapping[str, Any]) -> "Generator[ChatPiece]":
        """A streamed answer as it arrives. Closing the generator tells the server to stop."""
        from turnout.cli.chat_stream import read_pieces

        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=CHAT_QUIET_S)
        body = _body({**fields, "stream": True})
        with (
            self._translated(),
            self._http.stream("POST", "/v1/chat/completions", timeout=timeout, **body) as response,
        ):
            _check_success(response)
            if not _is_event_stream(response):
                raise TurnoutError(f"{response.url} did not answer with a stream")
            yield from read_pieces(response.iter_bytes())

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as err:
            if "WRONG_VERSION_NUMBER" in str(err):
                plain = self.server.url.replace("https:", "http:", 1)
                raise TurnoutError(f"{self.server.url} does not speak TLS; try {plain}") from err
            if "certificate" in str(err).lower():
                raise TurnoutError(
                    f"the certificate of {self.server.url} is not trusted ({err}); name its authority with --ca-file"
                ) from err
            raise NoServer(_no_answer(self.server)) from err
        except httpx.TransportError as err:
            what = str(err) or type(err).__name__
            tls = " (does it speak https?)" if self.server.url.startswith("http:") else ""
            raise Dropped(f"the connection to {self.server.url} broke: {what}{tls}") from err
        except (httpx.InvalidURL, httpx.TooManyRedirects, httpx.DecodingError) as err:
            raise TurnoutError(f"{self.server.url} answered with something odd: {err}") from err


def _trusting(ca_file: Path | None, url: str) -> ssl.SSLContext | bool:
    if not url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody: to load the system's takes time
    if ca_file is None:
        return True
    from turnout.run.client_tls import client_tls

    return client_tls(ca_file)


def _no_answer(server: ServerAddress) -> str:
    line = f"nothing answers at {server.url} ({server.origin})"
    if server.pid is not None and not _is_alive(server.pid):
        line += f"; the Turnout that wrote it (pid {server.pid}) is gone"
    return f"{line}; start one with: turnout up"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as err:
        return not isinstance(err, ProcessLookupError)
    return True


def _is_event_stream(response: httpx.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _path(*parts: str) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Lone surrogates, which a wrong locale makes, become question marks rather than a traceback."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        content = json.dumps(given, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    except ValueError as err:
        raise errors.InvalidRequest("numbers must be finite") from err
    return {"content": content, "headers": {"content-type": "application/json"}}


def _json(response: httpx.Response) -> Mapping[str, Any]:
    _check_success(response)
    if not response.content:
        return {}
    try:
        content: object = response.json()
    except ValueError as err:
        raise TurnoutError(f"{response.url} did not answer with JSON: is that a Turnout server?") from err
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {"data": content}


def _check_success(response: httpx.Response) -> None:
    """Raises an error from the status and body, unless it was a success."""
    if response.is_success:
        return
    try:
        answer = ServerError.model_validate_json(response.read())
    except ValidationError:
        answer = ServerError()
    wait = response.headers.get("retry-after", "")
    raise answer.as_error(
        _BY_STATUS.get(response.status_code, TurnoutError),
        f"the server answered {response.status_code} {response.reason_phrase}",
        float(wait) if wait.isdigit() else None,
    )
