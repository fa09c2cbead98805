"""People and invites as an admin types them, against a real service; the browser's part is played over HTTP."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from tests.cli.conftest import Cli
from tests.cli.test_as_typed import told
from tests.service import Service


@contextmanager
def _come_by(service: Service, link: str, name: str | None) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, headers={"origin": service.url}, timeout=30) as browser:
        body = {"invite": link.partition("#invite=")[2], **({} if name is None else {"name": name})}
        browser.post("/v1/login/invite", json=body).raise_for_status()
        yield browser


def _person(turnout: Cli, name: str) -> dict[str, Any]:
    (found,) = told(turnout, "people", "list", name)["data"]
    return found


def test_people_are_invited_limited_disabled_and_removed(turnout: Cli, service: Service) -> None:
    made = turnout(
        *("invites", "create", "--uses", "2", "--videos", "3", "--expires", "1d", "--note", "a class of two")
    )
    assert made.code == 0, made.err
    link = made.out.strip()
    assert link.startswith(f"{service.url}/#invite=i-") and "2 people" in made.err and "only time" in made.err
    assert "is this machine's own" in made.err
    invite = link.partition("#invite=")[2].partition(".")[0]
    listed = turnout("invites", "list").out
    assert any(line.split()[:5] == [invite, "open", "0", "of", "2"] for line in listed.splitlines())
    name = f"Typed-{time.time_ns()}"
    with _come_by(service, link, name) as ada:
        assert ada.get("/v1/account").json()["videos_today"] == {"asked": 0, "most": 3}
        person = _person(turnout, name)
        row = turnout("people", "list", name).out.splitlines()
        assert row[0].split()[:4] == ["ID", "NAME", "TENANT", "ROLE"] and "3 videos" in row[1]
        changed = told(
            turnout, "people", "set", person["id"], "--chats", "5", "--role", "admin", "--expires", "30d"
        )
        assert changed["limits"] == {"videos": 3, "chats": 5} and changed["role"] == "admin"
        assert told(turnout, "people", "set", person["id"], "--videos", "none")["limits"]["videos"] is None
        assert told(turnout, "people", "set", person["id"], "--expires", "never")["expires_at"] is None
        assert turnout("people", "disable", person["id"]).out.split()[-1] == "disabled"
        assert ada.get("/v1/videos").status_code == 401
        assert turnout("people", "enable", person["id"]).out.split()[-1] == "in"
        assert ada.get("/v1/videos").status_code == 200
    again = turnout("invites", "create", "--person", person["id"])
    with _come_by(service, again.out.strip(), None) as phone:
        assert phone.get("/v1/session").json()["person"] == person["id"]
        assert turnout("people", "remove", person["id"], "--yes").out == f"{person['id']} removed\n"
        assert phone.get("/v1/session").status_code == 204
    assert turnout("invites", "revoke", invite).out == f"{invite} revoked\n"
    audit = turnout("audit").out
    assert "person.removed" in audit and name not in audit


def test_what_is_typed_wrong_is_told_in_a_line(turnout: Cli, service: Service) -> None:
    for words, code, said in (
        (("people", "set", "p-0000000000000000"), 2, "say what to change"),
        (("people", "set", "p-0000000000000000", "--videos", "many"), 1, "no person"),
        (("people", "disable", "p-0000000000000000"), 1, "no person"),
        (("people", "disable", "ada"), 2, "must match"),
        (("invites", "create", "--uses", "0"), 2, "uses"),
        (("invites", "create", "--role", "worker"), 2, "role"),
        (("invites", "create", "--expires", "soon"), 2, "--expires is a time"),
        (("invites", "revoke", "i-0"), 1, "no invite"),
    ):
        answer = turnout(*words)
        assert (answer.code, answer.err.count("\n")) == (code, 1) and said in answer.err, (words, answer.err)
    user = turnout("people", "list", TURNOUT_API_KEY=service.key_of())
    assert user.code == 1 and "admin" in user.err
    assert json.loads(turnout("people", "list", "nobody-like-this", "--json").out)["data"] == []
