"""Everything of a person as one zip file, made while it is sent: no more of it is in memory than a piece."""

import io
import json
import zipfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from turnout.chat.conversation_json import conversation_shown
from turnout.errors import NotFound
from turnout.gateway.gateway import Gateway
from turnout.people.belongings import tasks_of
from turnout.people.person_json import person_shown
from turnout.people.person_store import KnownPerson
from turnout.tasks.object_keys import is_checkpoint, of_task, told_of
from turnout.tasks.task_rules import Task
from turnout.tasks.video_json import video_of
from turnout.tenants.caller import person_owner
from turnout.tenants.key_json import key_of


class _Paper(io.RawIOBase):
    """What was written and not yet taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


async def archive(gateway: Gateway, known: KnownPerson) -> AsyncGenerator[bytes]:
    """`account.json`, for each conversation `conversations/ID.json`, and for each video `videos/ID/` with what was asked for and its
    files as they are stored."""
    paper = _Paper()
    with zipfile.ZipFile(paper, "w") as out:  # videos and pictures are compressed as they are
        _write(out, "account.json", await _account(gateway, known), gateway.now())
        yield paper.take()
        owner, chats = person_owner(known.person.id), gateway.stores.tenants.conversations
        for one in await chats.of(owner):
            with suppress(NotFound):  # it was deleted meanwhile
                said = conversation_shown(one, await chats.read(owner, one)).model_dump(mode="json")
                _write(out, f"conversations/{one.id}.json", said, one.updated_at)
                yield paper.take()
        async for task in tasks_of(gateway.stores, known.person):
            video = video_of(task, gateway.videos.settings.retention_s)
            labels = await gateway.videos.labels.find(task.id)
            video.favourite, video.tags = labels.favourite, list(labels.tags)
            shown = video.model_dump(mode="json")
            _write(out, f"videos/{task.id}/video.json", shown, task.created_at)
            async for piece in _files(gateway, out, paper, task):
                yield piece
    yield paper.take()


async def _account(gateway: Gateway, known: KnownPerson) -> dict[str, Any]:
    keys = await gateway.stores.tenants.people.keys_of(known.person)
    sessions = await gateway.stores.tenants.sessions.of(known.person.id)
    presets = await gateway.stores.tenants.presets.of(person_owner(known.person.id))
    return {
        "presets": {name: asdict(preset) for name, preset in presets.items()},
        "person": person_shown(known).model_dump(mode="json"),
        "keys": [key_of(key).model_dump(mode="json", exclude={"token", "replaces"}) for key in keys],
        "sessions": [
            {"opened_at": int(one.session.created_at), "agent": one.by.agent, "address": one.by.address}
            for one in sessions
        ],
    }


async def _files(gateway: Gateway, out: zipfile.ZipFile, paper: _Paper, task: Task) -> AsyncGenerator[bytes]:
    """What the task was given, and what it is told to have: what lies beside that was not finished, or not let through by the check.
    Checkpoints only gangs read."""
    blobs, told = gateway.stores.blobs, {*told_of(task), task.spec.image}
    async for blob in blobs.list(of_task(task.id)):
        if blob.key not in told or is_checkpoint(blob.key):
            continue
        inside = blob.key.removeprefix(of_task(task.id)).replace("/", "-")
        entry = zipfile.ZipInfo(f"videos/{task.id}/{inside}", _date(blob.modified_at))
        try:
            with out.open(entry, "w", force_zip64=True) as file:
                async for piece in blobs.stream(blob.key, 0, blob.size):
                    file.write(piece)
                    yield paper.take()
        except NotFound:
            continue  # it was deleted meanwhile


def _write(out: zipfile.ZipFile, name: str, content: object, at: float) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    out.writestr(zipfile.ZipInfo(name, _date(at)), text, zipfile.ZIP_DEFLATED)


def _date(at: float) -> tuple[int, int, int, int, int, int]:
    """As zip files have it: from 1980 on."""
    when: Iterable[int] = datetime.fromtimestamp(at, UTC).timetuple()[:6]
    year, *rest = when
    month, day, hour, minute, second = rest
    return max(1980, year), month, day, hour, minute, second
