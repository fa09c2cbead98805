"""Operators hear of what happened: once, in one message, and of what they want to hear of."""

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import Stores
from tests.tasks.test_robots import OK, RobotServer, robot_serving
from tests.tasks.test_webhooks import deliver, receiving
from tests.tenants.test_budget_accounts import Scene

from turnout.errors import Misconfigured
from turnout.fleet.fleet_records import HISTORY
from turnout.fleet.fleet_rules import GivenUp, ModelHistory
from turnout.run.config import load
from turnout.tenants.audit_rules import AuditAction, AuditEntry, NoticeGroup
from turnout.tenants.budget_rules import Budget
from turnout.tenants.notices import NoticePost, Notices


def notices_to(stores: Stores, *urls: str, groups: tuple[NoticeGroup, ...] = tuple(NoticeGroup)) -> Notices:
    post = NoticePost(urls, stores.outbox, time.time)
    return Notices(post, frozenset(groups), stores.link, stores.tenants.audit, stores.fleet.status)


async def happened(stores: Stores, action: AuditAction, target: str) -> None:
    await stores.tenants.audit.add(AuditEntry(time.time(), "k-1", action, target))


def words(robot: RobotServer) -> list[str]:
    return [body["text"]["content"] for _, body in robot.got]


async def test_operators_hear_once_of_what_they_want_to_hear_of(stores: Stores) -> None:
    async with robot_serving(OK["wecom"]) as robot:
        notices = notices_to(stores, robot.url("wecom"), groups=(NoticeGroup.PEOPLE,))
        await happened(stores, AuditAction.PERSON_JOINED, "p-before")
        await notices.look()
        for number in range(30):
            await happened(stores, AuditAction.PERSON_JOINED, f"p-{number}")
        await happened(stores, AuditAction.KEY_CREATED, "k-2")
        await notices.look()
        await notices_to(stores, robot.url("wecom"), groups=(NoticeGroup.PEOPLE,)).look()  # another manager
        await deliver(stores, time.time() + 1)
        (said,) = words(robot)
        assert said.count("新成员加入 Person joined") == 20 and "另有 10 条 and 10 more" in said
        assert "p-0" in said and "p-before" not in said and "k-2" not in said


async def test_a_model_that_does_not_start_is_told_of_once_an_hour(stores: Stores) -> None:
    async with robot_serving(OK["dingtalk"]) as robot:
        notices = notices_to(stores, robot.url("dingtalk"))
        past = ModelHistory(
            1.0, given_up={"wan": GivenUp("out of memory", 9e9), "far": GivenUp("no machine")}
        )
        await stores.link.client.hset(stores.link.keys.manager(), "notes", HISTORY.dump(past))
        await notices.look()
        await notices.look()
        await deliver(stores, time.time() + 1)
        (said,) = words(robot)
        assert "模型无法启动 Model does not start: wan (out of memory)" in said and "far" not in said


async def test_a_budget_is_told_to_its_tenant_and_to_operators(stores: Stores) -> None:
    async with receiving(200) as tenant, robot_serving(OK["feishu"]) as robot:
        scene = Scene(stores, {"acme": replace(Budget(10), webhook=tenant.url)})
        scene.accounts.operators = NoticePost([robot.url("feishu")], stores.outbox, lambda: scene.now)
        await scene.spend("2026-11-05", 9)
        await scene.tell()
        await scene.tell()
        assert len(tenant.got) == 1
        ((_, body),) = robot.got
        assert "预算预警" in body["content"]["text"] and "9.00 / 10.00 EUR" in body["content"]["text"]


@pytest.mark.parametrize(
    "said",
    [
        {"notices": "ftp://x/token"},
        {"notices": "https://a/token,https://b/token nothing"},
        {"notices": " ".join(f"https://example.com/token{n}" for n in range(11))},
        {"notice_events": "people birthdays"},
    ],
    ids=str,
)
def test_what_cannot_be_told_is_refused_without_saying_the_url(said: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured) as refusal:
        load(said, {})
    assert "token" not in str(refusal.value)
