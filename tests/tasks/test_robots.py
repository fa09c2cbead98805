"""Group robots of Feishu, DingTalk and WeCom are told through the same outbox and guard as every webhook."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, running
from tests.tasks.test_webhooks import deliver, ended_task

OK = {"feishu": {"code": 0, "msg": "success"}, "dingtalk": {"errcode": 0}, "wecom": {"errcode": 0}}


class RobotServer:
    """Answers as one of the robots does; keeps what it got."""

    def __init__(self, answers: Sequence[Mapping[str, Any]]) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1])
            for line in head.lower().split("\r\n")
            if line.startswith("content-length")
        )
        self.got.append((head.split(" ")[1], json.loads(await reader.readexactly(length))))
        said = json.dumps(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(said)}\r\n\r\n{said}".encode())
        await writer.drain()
        writer.close()

    def url(self, kind: str, rest: str = "/hook/t0ken?key=t0ken#s3cret") -> str:
        return f"{kind}+http://127.0.0.1:{self.port}{rest}"


@asynccontextmanager
async def robot_serving(*answers: Mapping[str, Any]) -> AsyncIterator[RobotServer]:
    robot = RobotServer(answers)
    async with await asyncio.start_server(robot.serve, "127.0.0.1", 0) as server:
        robot.port = server.sockets[0].getsockname()[1]
        yield robot


@pytest.mark.parametrize("kind", list(OK))
async def test_a_webhook_at_a_robot_is_told_in_its_format_again_until_it_takes_it(
    stores: Stores, kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    refusal = {"code": 9499} if kind == "feishu" else {"errcode": 45009}
    caplog.set_level(logging.INFO)
    async with robot_serving(refusal, OK[kind]) as robot:
        await ended_task(stores, robot.url(kind))
        now = time.time() + 1
        assert await deliver(stores, now) == 1
        assert await deliver(stores, now + 1) == 0, "it waits for its next try"
        assert await deliver(stores, now + 10) == 1
        assert await deliver(stores, now + 100_000) == 0, "it was taken"
    assert len(robot.got) == 2
    for _, body in robot.got:
        words = body["content"]["text"] if kind == "feishu" else body["text"]["content"]
        assert "视频已取消" in words and ("sign" in body) is (kind == "feishu")
    assert (robot.got[0] != robot.got[1]) is (kind != "wecom"), "signed anew each time"
    said = capfd.readouterr()
    for secret in ("t0ken", "s3cret"):
        assert secret not in said.out + said.err
        assert not any(secret in r.getMessage() for r in caplog.records if r.name.startswith("turnout"))


async def test_a_robot_is_reached_through_the_same_guard(stores: Stores) -> None:
    async with robot_serving(OK["wecom"]) as robot:
        await ended_task(stores, robot.url("wecom"))
        assert await deliver(stores, time.time() + 1, allow_private=False) == 1
    assert robot.got == []


@pytest.fixture
async def gateway_with_private_urls(stores: Stores, tmp_path: Any) -> AsyncIterator[Gateway]:
    async with running(stores, tmp_path, allow_private_urls=True) as made:
        yield made


async def test_a_submission_takes_a_robots_url(gateway_with_private_urls: Gateway, gateway: Gateway) -> None:
    async with robot_serving(OK["feishu"]) as robot:
        asked = {"prompt": "a ball", "webhook_url": robot.url("feishu")}
        answer = await gateway_with_private_urls.http.post("/v1/videos", json=asked)
        assert answer.status_code == 200 and "t0ken" not in answer.text
        refused = await gateway.http.post("/v1/videos", json=asked)
        assert refused.json()["error"]["code"] == "url_not_allowed", (
            "the operator has not allowed private ones"
        )
