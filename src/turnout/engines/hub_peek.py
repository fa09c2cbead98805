"""A model on a hub without its weights: its configuration, and the headers of its weight files, as files of their full length with
holes. So `turnout models check` judges a model by the same rules before it is pulled as after."""

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from turnout.engines.hub import (
    HUB_UNAVAILABLE,
    HUB_UNREADABLE,
    TIMEOUT,
    Hub,
    RemoteFile,
    check_answer,
    hub_errors,
    wanted_files,
)
from turnout.errors import InvalidRequest, Unavailable

_WEIGHTS = ".safetensors"
_MAX_HEADER_BYTES = 8 << 20
_MAX_CONFIG_BYTES = 2 << 20
_AT_ONCE = 4


def peek(hub: Hub, folder: Path, include: tuple[str, ...] = (), token: str | None = None) -> list[RemoteFile]:
    """All files that a pull would bring; those that a check reads lie in `folder`. Raises an error of our tree."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with hub_errors(), httpx.Client(headers=headers, timeout=TIMEOUT, follow_redirects=True) as client:
        files = list(wanted_files(hub.files(client), include or ("*",), ()))
        read = [file for file in files if _is_read(file)]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="peek") as pool:
            for job in [pool.submit(_take, client, hub.address(file.path), file, folder) for file in read]:
                job.result()
    return files


def _is_read(file: RemoteFile) -> bool:
    return file.path.endswith(_WEIGHTS) or (file.path.endswith(".json") and file.size <= _MAX_CONFIG_BYTES)


def _take(client: httpx.Client, url: str, file: RemoteFile, folder: Path) -> None:
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    most = min(file.size, _MAX_HEADER_BYTES if file.path.endswith(_WEIGHTS) else _MAX_CONFIG_BYTES)
    head = _beginning(client, url, most, is_weights=file.path.endswith(_WEIGHTS)) if most else b""
    with target.open("xb") as out:
        out.write(head)
        out.truncate(file.size)


def _beginning(client: httpx.Client, url: str, most: int, *, is_weights: bool) -> bytes:
    """Up to the end of a weight file's header; of another file, all."""
    data, needed = b"", 8 if is_weights else most
    asked = {"Range": f"bytes=0-{most - 1}", "Accept-Encoding": "identity"}
    with client.stream("GET", url, headers=asked) as answer:
        check_answer(answer)
        for piece in answer.iter_raw():
            data += piece
            if is_weights and len(data) >= 8 and needed == 8:
                needed = 8 + struct.unpack("<Q", data[:8])[0]
                if needed > most:
                    raise InvalidRequest(f"a weight file has a header of {needed} bytes", code=HUB_UNREADABLE)
            if len(data) >= needed > 8:
                return data[:needed]
    if len(data) < needed:
        raise Unavailable("the hub's answer ended early", code=HUB_UNAVAILABLE)
    return data[:needed]


def is_wan(folder: Path) -> bool:
    try:
        return "Wan" in str(json.loads((folder / "model_index.json").read_text()).get("_class_name", ""))
    except (OSError, ValueError, AttributeError):
        return False
