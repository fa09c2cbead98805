"""A batch of prompts: submitted a few at a time, each followed to its end, and the same tasks found again by a second run."""

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from turnout.cli.client import ApiClient, VideoOrder
from turnout.cli.display import Silent
from turnout.cli.download import save
from turnout.cli.follow import Follower, RetryWindow
from turnout.cli.server_answers import VideoAnswer
from turnout.errors import InvalidRequest, Limited, TurnoutError

_MAX_LINES = 100_000
_LIMITED_S = 1.0


@dataclass(frozen=True, slots=True)
class RenderLine:
    """`name` is the line's `id`, or its number; `key` is the same for the same line in a second run."""

    name: str
    fields: Mapping[str, Any]

    @property
    def key(self) -> str:
        said = json.dumps([self.name, self.fields], sort_keys=True)
        return f"render-{hashlib.sha256(said.encode()).hexdigest()[:40]}"


def read_lines(source: str, model: str | None) -> list[RenderLine]:
    """All lines, or the one prompt. Raises InvalidRequest with the number of the first wrong line."""
    if source != "-" and not source.endswith(".jsonl"):
        return [RenderLine("1", _with_model({"prompt": source}, model))]
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidRequest(f"{source}: {err}") from err
    written = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(written) > _MAX_LINES:
        raise InvalidRequest(f"{source} has over {_MAX_LINES} lines")
    lines = [_read(number, line, model) for number, line in written]
    names = [line.name for line in lines]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"{source}: an id stands twice")
    return lines


def _read(number: int, line: str, model: str | None) -> RenderLine:
    try:
        said: object = json.loads(line)
    except ValueError as err:
        raise InvalidRequest(f"line {number} is not JSON: {err}") from err
    if not isinstance(said, dict) or not isinstance(cast("dict[str, object]", said).get("prompt"), str):
        raise InvalidRequest(f'line {number} is no object with a prompt, as {{"prompt": "waves"}}')
    fields = cast("dict[str, Any]", said)
    name = str(fields.pop("id", number))
    if not name or "/" in name or name.startswith(".") or len(name) > 200:
        raise InvalidRequest(f"line {number}: the id names a file, without / and not beginning with a dot")
    return RenderLine(name, _with_model(fields, model))


def _with_model(fields: Mapping[str, Any], model: str | None) -> Mapping[str, Any]:
    return {"model": model, **fields} if model else fields


@dataclass(frozen=True, slots=True)
class Batch:
    """`folder` None: nothing is downloaded."""

    client: ApiClient
    folder: Path | None
    parallel: int

    def run(self, lines: Sequence[RenderLine]) -> Iterator[dict[str, Any]]:
        """A result for each line, as they end. What is interrupted leaves its tasks to the service."""
        left = iter(lines)
        pool = ThreadPoolExecutor(self.parallel, thread_name_prefix="render")
        under_way: set[Future[dict[str, Any]]] = set()
        try:
            while True:
                while len(under_way) < self.parallel and (line := next(left, None)) is not None:
                    under_way.add(pool.submit(self._render, line))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _render(self, line: RenderLine) -> dict[str, Any]:
        began = time.monotonic()
        said: dict[str, Any] = {"id": line.name, "task": None, "status": "failed", "error": None}
        target = None if self.folder is None else self.folder / f"{line.name}.mp4"
        try:
            video = self._submit(line)
            said["task"] = video.id
            video = Follower(self.client, video, Silent()).wait_ended()
            said |= {"status": video.status, "seed": video.seed}
            said["error"] = video.error.message if video.error else None
            if video.status == "completed" and target is not None:
                if not target.exists():
                    save(self.client, Silent(), video.id, target)
                said["path"] = str(target)
            elif video.status == "completed":
                said["url"] = f"{self.client.server.url}/v1/videos/{video.id}/content"
        except TurnoutError as err:
            said |= {"status": "failed", "error": err.message}
        return {**said, "took_s": round(time.monotonic() - began, 3)}

    def _submit(self, line: RenderLine) -> VideoAnswer:
        submission = self.client.submission(VideoOrder(line.fields), line.key)
        while True:
            try:
                return RetryWindow(Silent().note).call(lambda: self.client.submit(submission))
            except Limited as err:
                time.sleep(err.retry_after_s or _LIMITED_S)  # others of ours must end first
