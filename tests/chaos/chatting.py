"""Clients that chat while everything around them dies, streamed and plain in turn, and what became of each of their requests."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.chaos.cluster import CHAT_MODEL, Cluster
from tests.chaos.faults import Fault
from tests.pace import patient

_TOKENS = 24
_ANSWER_S = 120.0  # a model that lost both its replicas is awake again by then
_REST_S = 0.2
_DEAD_ENGINE = "replica_lost"
"""What is told of an engine that died in the middle of an answer: there is nothing else that could be done."""
_LEAVING = "shutting_down"
"""What is told of a gateway that was asked to leave, when `gateway_drain_s` is over. Clients come again."""


@dataclass
class ChatAccount:
    """`broken` answers ended with the error that says so; `cut` connections ended in a gateway that died, `sent_away` requests at one
    that was restarted in turn. What else is not a whole answer is `odd`."""

    whole: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    cut: int = 0
    sent_away: int = 0
    odd: list[str] = field(default_factory=list)

    def rows(self) -> list[tuple[str, str]]:
        if not (self.whole or self.odd):
            return []
        whole = f"{self.whole['stream']} streams, {self.whole['plain']} plain"
        ended = (
            f"{self.broken} by a dead engine, {self.cut} by a dead gateway, {self.sent_away} by one that was restarted, "
            f"{len(self.odd)} otherwise"
        )
        return [("chats answered", whole), ("chats not answered", ended)]


class Chatting:
    """`faults` are the latest that were caused."""

    def __init__(self, cluster: Cluster, account: ChatAccount) -> None:
        self._cluster = cluster
        self._account = account
        self.faults: Sequence[Fault] = ()

    async def talk(self, number: int, done: asyncio.Event) -> None:
        for turn in itertools.count(number):
            if done.is_set():
                return
            url = self._cluster.urls[turn % len(self._cluster.urls)]
            body = {
                "model": CHAT_MODEL,
                "messages": [{"role": "user", "content": f"Tell story {number}, part {turn}."}],
                "max_tokens": _TOKENS,
                "stream": turn // 2 % 2 == 0,
            }
            await self._ask(url, body)
            await asyncio.sleep(_REST_S)

    async def _ask(self, url: str, body: dict[str, Any]) -> None:
        account, during = self._account, self.faults
        timeout = httpx.Timeout(patient(_ANSWER_S))
        try:
            async with (
                httpx.AsyncClient(
                    base_url=url, headers=self._cluster.headers, timeout=timeout, verify=False
                ) as http,
                http.stream("POST", "/v1/chat/completions", json=body) as answer,
            ):
                said = (await answer.aread()).decode()
        except httpx.HTTPError as err:
            if any(fault.cuts for fault in (*during, *self.faults)):
                account.cut += 1
            else:
                self._odd(repr(err))
            return
        problem = _problem(answer.status_code, said, streamed=body["stream"])
        if problem is None:
            account.whole["stream" if body["stream"] else "plain"] += 1
        elif answer.status_code == 200 and problem == _DEAD_ENGINE:
            account.broken += 1
        elif problem == _LEAVING and any(
            fault.name == "rolling restart" for fault in (*during, *self.faults)
        ):
            account.sent_away += 1
        else:
            self._odd(f"{answer.status_code} {problem}")

    def _odd(self, what: str) -> None:
        self._account.odd.append(
            f"{what} during {' + '.join(fault.name for fault in self.faults) or 'nothing'}"
        )


def _problem(status: int, said: str, *, streamed: bool) -> str | None:
    """The code of the error that a client was told, or what is wrong with the answer; None for a whole one."""
    if not streamed or status != 200:
        try:
            answer = json.loads(said)
        except ValueError:
            return f"no JSON: {said[:200]}"
        return answer["error"]["code"] if "error" in answer else None
    events = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
    for event in events[-2:]:
        if event.startswith("{") and "error" in (told := json.loads(event)):
            return told["error"]["code"]
    return None if events and events[-1] == "[DONE]" else "ended silently short"
