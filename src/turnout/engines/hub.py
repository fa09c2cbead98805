"""Fetches a model from a hub (Hugging Face, a mirror of it, or ModelScope) into a folder, and goes on where it was stopped.

Our own and not huggingface_hub's: its second version throws a file away that was not finished, and those of Wan have 10 GB
each. A file is written as `NAME.part`, read again from the hub at its length, checked against the hub's digest, and then
renamed. What was checked is noted in a hidden file, so that a second run reads no hashes again.
"""

import fnmatch
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, cast
from urllib.parse import quote

import httpx

from turnout.errors import Forbidden, InvalidRequest, NotFound, TurnoutError, Unavailable

HUGGING_FACE = "https://huggingface.co"
MODEL_SCOPE = "https://modelscope.cn"
_NOTES = ".turnout-pull.json"
_CHUNK_BYTES = 1 << 20
TIMEOUT = httpx.Timeout(60.0, connect=20.0)
_TRIES = 6
"""In a row without a single new byte."""
_MOST_FILES = 10_000
HUB_UNAVAILABLE, HUB_UNREADABLE = "hub_unavailable", "hub_unreadable"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """`digest` is `sha256:…` or, of small files on Hugging Face, git's `blob:…`; empty when the hub tells none."""

    path: str
    size: int
    digest: str = ""


class Hub(Protocol):
    def files(self, client: httpx.Client) -> Sequence[RemoteFile]:
        """All files of the repository."""
        ...

    def address(self, path: str) -> str: ...


class HuggingFace:
    """Also its mirrors, which speak the same protocol. The revision is pinned when files are listed."""

    def __init__(self, repo: str, revision: str | None = None, endpoint: str | None = None) -> None:
        self._base = (endpoint or HUGGING_FACE).rstrip("/")
        self._repo = repo
        self._revision = revision or "main"

    def files(self, client: httpx.Client) -> Sequence[RemoteFile]:
        about = _json(
            client.get(f"{self._base}/api/models/{self._repo}/revision/{quote(self._revision, safe='')}")
        )
        self._revision = str(about["sha"])
        found: list[RemoteFile] = []
        url: str | None = f"{self._base}/api/models/{self._repo}/tree/{self._revision}?recursive=true"
        while url and len(found) < _MOST_FILES:
            page = client.get(url)
            for entry in cast("list[dict[str, Any]]", _json(page)):
                if entry.get("type") == "file":
                    large: Mapping[str, Any] = entry.get("lfs") or {}
                    digest = f"sha256:{large['oid']}" if large else f"blob:{entry.get('oid', '')}"
                    found.append(
                        RemoteFile(str(entry["path"]), int(large.get("size", entry["size"])), digest)
                    )
            url = page.links.get("next", {}).get("url")
            if url and not url.startswith(f"{self._base}/"):  # it would be sent the token, too
                raise Unavailable(f"the hub's list goes on elsewhere: {url[:200]!r}", code=HUB_UNREADABLE)
        return found

    def address(self, path: str) -> str:
        return f"{self._base}/{self._repo}/resolve/{self._revision}/{quote(path)}"


class ModelScope:
    def __init__(self, repo: str, revision: str | None = None, endpoint: str | None = None) -> None:
        self._base = (endpoint or MODEL_SCOPE).rstrip("/")
        self._repo = repo
        self._revision = revision or "master"

    def files(self, client: httpx.Client) -> Sequence[RemoteFile]:
        params = {"Revision": self._revision, "Recursive": "true"}
        listed = _json(client.get(f"{self._base}/api/v1/models/{self._repo}/repo/files", params=params))
        entries = cast("list[dict[str, Any]]", listed["Data"]["Files"])
        return [
            RemoteFile(str(f["Path"]), int(f["Size"]), f"sha256:{f['Sha256']}" if f.get("Sha256") else "")
            for f in entries
            if f.get("Type") != "tree"
        ]

    def address(self, path: str) -> str:
        return f"{self._base}/models/{self._repo}/resolve/{quote(self._revision, safe='')}/{quote(path)}"


HUBS: Mapping[str, Callable[[str, str | None, str | None], Hub]] = {
    "huggingface": HuggingFace,
    "modelscope": ModelScope,
}


class Pull:
    """One model into one folder. `include` and `exclude` are patterns of paths; hidden files are left out."""

    def __init__(
        self,
        hub: Hub,
        folder: Path,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        token: str | None = None,
    ) -> None:
        self._hub = hub
        self._folder = folder
        self._include = include or ("*",)
        self._exclude = exclude
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._lock = threading.Lock()
        self._checked: dict[str, str] = {}
        self._done = 0
        self._stopped = threading.Event()

    def run(self, progress: Progress | None = None, at_once: int = 4) -> int:
        """Returns how many bytes the model has. Raises an error of our tree; a second run goes on from there."""
        # Redirects lead to other machines; httpx leaves the token out there.
        with (
            hub_errors(),
            httpx.Client(headers=self._headers, timeout=TIMEOUT, follow_redirects=True) as client,
        ):
            wanted = wanted_files(self._hub.files(client), self._include, self._exclude)
            files = sorted(wanted, key=lambda file: file.size)
            total = sum(file.size for file in files)
            self._check_disk(total)
            self._checked = self._read_notes()
            with ThreadPoolExecutor(at_once, thread_name_prefix="pull") as pool:
                jobs = [pool.submit(self._fetch, client, file, progress, total) for file in files]
                try:
                    for job in jobs:
                        job.result()
                except BaseException:
                    self._stopped.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        return total

    def _check_disk(self, total: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        here = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        free = shutil.disk_usage(self._folder).free
        if free < total - here:
            raise InvalidRequest(
                f"{(total - here) / 1e9:.1f} GB are needed, and {free / 1e9:.1f} GB are free",
                code="disk_full",
            )

    def _fetch(self, client: httpx.Client, file: RemoteFile, progress: Progress | None, total: int) -> None:
        target = self._folder / file.path
        self._refuse_links(target)
        part = target.with_name(f"{target.name}.part")

        def advanced(count: int) -> None:
            if self._stopped.is_set():
                raise Unavailable("another file could not be fetched")
            with self._lock:
                self._done += count
                if progress is not None:
                    progress(self._done, total)

        if target.is_file() and target.stat().st_size == file.size and self._is_checked(target, file):
            advanced(file.size)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        self._receive(client, file, part, advanced)
        if file.digest and _digest(part, file) != file.digest:
            part.unlink()
            raise Unavailable(
                f"{file.path} came with other bytes than the hub names; run it again", code="hub_wrong_bytes"
            )
        part.replace(target)
        self._note(file)

    def _refuse_links(self, target: Path) -> None:
        """What is written goes into the folder, also when somebody has put a link there."""
        part = target.with_name(f"{target.name}.part")
        for path in (target, part, *target.parents):
            if path == self._folder:
                return
            if path.is_symlink():
                raise InvalidRequest(f"{path} is a link, which a pull does not follow; remove it")

    def _is_checked(self, target: Path, file: RemoteFile) -> bool:
        if self._checked.get(file.path) == file.digest:
            return True
        if not file.digest or _digest(target, file) != file.digest:
            return False
        self._note(file)
        return True

    def _note(self, file: RemoteFile) -> None:
        with self._lock:
            self._checked[file.path] = file.digest
            notes = self._folder / _NOTES
            fresh = notes.with_name(f"{_NOTES}.new")
            fresh.unlink(missing_ok=True)  # a link would be followed
            fresh.write_text(json.dumps(self._checked))
            fresh.replace(notes)

    def _receive(
        self, client: httpx.Client, file: RemoteFile, part: Path, advanced: Callable[[int], None]
    ) -> None:
        """The rest of the file behind what `part` has."""
        here = part.stat().st_size if part.exists() else 0
        if here > file.size:
            part.unlink()
            here = 0
        advanced(here)
        left = _TRIES
        part.touch()
        while here < file.size:
            before = here
            try:
                here = _read_on(client, self._hub.address(file.path), part, here, file.size, advanced)
            except (httpx.TransportError, Unavailable):
                if self._stopped.is_set():
                    raise
                here = part.stat().st_size
                left = _TRIES if here > before else left - 1
                if not left:
                    raise
                time.sleep(0.1 * 2 ** (_TRIES - left))

    def _read_notes(self) -> dict[str, str]:
        try:
            return dict(json.loads((self._folder / _NOTES).read_text()))
        except (OSError, ValueError, TypeError):
            return {}


@contextmanager
def hub_errors() -> Generator[None]:
    """Says what went wrong with a hub, or with what it was written to, as errors of our tree."""
    try:
        yield
    except httpx.HTTPError as err:
        raise Unavailable(
            f"the hub did not answer: {err or type(err).__name__}", code=HUB_UNAVAILABLE
        ) from err
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError, httpx.InvalidURL) as err:
        raise Unavailable(f"the hub's answer cannot be read: {err!r}", code=HUB_UNREADABLE) from err
    except OSError as err:
        raise InvalidRequest(f"the model cannot be written: {err}", code="folder_not_writable") from err


def wanted_files(
    files: Sequence[RemoteFile], include: Sequence[str], exclude: Sequence[str]
) -> Iterator[RemoteFile]:
    """Those that the patterns name; hidden files are left out. Raises InvalidRequest."""
    for file in files:
        parts = PurePosixPath(file.path).parts
        if not parts or ".." in parts or file.path.startswith("/") or "\\" in file.path:
            raise InvalidRequest(
                f"the hub names a file outside of the folder: {file.path[:200]!r}", code=HUB_UNREADABLE
            )
        if any(part.startswith(".") for part in parts):
            continue
        if _like(file.path, include) and not _like(file.path, exclude):
            yield file


def _like(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _read_on(
    client: httpx.Client, url: str, part: Path, here: int, size: int, advanced: Callable[[int], None]
) -> int:
    headers = {"Range": f"bytes={here}-", "Accept-Encoding": "identity"}
    with client.stream("GET", url, headers=headers) as answer:
        check_answer(answer)
        if here and answer.status_code != 206:  # a server that knows no ranges sends all of it
            advanced(-here)
            here = 0
        with part.open("r+b", buffering=0) as out:
            out.truncate(here)
            out.seek(here)
            for chunk in answer.iter_raw():
                if here + len(chunk) > size:
                    raise InvalidRequest(
                        f"the hub sends more than {size} bytes of {part.name}", code=HUB_UNREADABLE
                    )
                out.write(chunk)
                here += len(chunk)
                advanced(len(chunk))
    if here < size:
        raise Unavailable(f"{part.name} ended after {here} of {size} bytes", code=HUB_UNAVAILABLE)
    return here


def _digest(path: Path, file: RemoteFile) -> str:
    kind = file.digest.partition(":")[0]
    digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % file.size)
    with path.open("rb") as data:
        while chunk := data.read(8 * _CHUNK_BYTES):
            digest.update(chunk)
    return f"{kind}:{digest.hexdigest()}"


def _json(answer: httpx.Response) -> Any:
    check_answer(answer)
    return answer.json()


def check_answer(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    where = f"{answer.request.url.host} answered {answer.status_code}"
    error: TurnoutError = Unavailable(where, code=HUB_UNAVAILABLE)
    if answer.status_code in (401, 403):
        error = Forbidden(
            f"{where}: the model needs permission; accept its licence, and give a token (HF_TOKEN).",
            code="hub_permission",
        )
    elif answer.status_code == 404:
        error = NotFound(f"{where}: there is no such model, revision or file.", code="not_at_hub")
    raise error
