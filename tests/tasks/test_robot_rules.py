"""Group robots of Feishu, DingTalk and WeCom: their own formats, their own signatures, and the words that groups read."""

import base64
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from turnout.cli.config_command import masked
from turnout.tasks.robot_rules import (
    Robot,
    RobotKind,
    called_url,
    refusal_of,
    robot_call,
    robot_of,
    shown_url,
    words_of,
)

FEISHU = "https://open.feishu.cn/open-apis/bot/v2/hook/1234-token"
DINGTALK = "https://oapi.dingtalk.com/robot/send?access_token=abc"
WECOM = "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=def"


@pytest.mark.parametrize(
    ("url", "kind", "called", "secret"),
    [
        (f"{FEISHU}#s3cret", "feishu", FEISHU, "s3cret"),
        (FEISHU.replace("open.feishu.cn", "open.larksuite.com"), "feishu", None, ""),
        (f"{DINGTALK}#SECx", "dingtalk", DINGTALK, "SECx"),
        (WECOM, "wecom", WECOM, ""),
        ("feishu+https://bots.corp.example/hook/1#s", "feishu", "https://bots.corp.example/hook/1", "s"),
        ("wecom+http://10.0.0.1/x", "wecom", "http://10.0.0.1/x", ""),
    ],
)
def test_a_robot_is_known_by_its_url(url: str, kind: str, called: str | None, secret: str) -> None:
    robot = robot_of(url)
    assert robot is not None and (robot.kind, robot.secret) == (RobotKind(kind), secret)
    assert called_url(url) == robot.url == (called or url)
    shown = shown_url(url)
    assert shown is not None and shown.endswith("/•••") and robot.url.rpartition("/")[2] not in shown
    assert masked(url) == "•••" and masked(f"{url} {url}") == "•••"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook#anchor",
        "http://open.feishu.cn/open-apis/bot/v2/hook/x",  # would tell the token to everybody on the way
        "https://open.feishu.cn.evil.example/open-apis/bot/v2/hook/x",
        "https://open.feishu.cn/elsewhere",
        "feishu+ftp://x/y",
        "https://[bad",
        "",
    ],
)
def test_others_are_plain_webhooks(url: str) -> None:
    assert robot_of(url) is None and shown_url(url) == called_url(url) == url


def test_messages_are_in_each_robots_format_and_signed_as_it_wants() -> None:
    at = 1_599_360_473.5
    plain = {
        url: robot_call(robot, "你好", at) for url in (FEISHU, DINGTALK, WECOM) if (robot := robot_of(url))
    }
    assert json.loads(plain[FEISHU].body) == {"msg_type": "text", "content": {"text": "你好"}}
    for url in (DINGTALK, WECOM):
        assert json.loads(plain[url].body) == {"msgtype": "text", "text": {"content": "你好"}}
        assert plain[url].url == url
    feishu, dingtalk = robot_of(f"{FEISHU}#key"), robot_of(f"{DINGTALK}#SECkey")
    assert feishu and dingtalk
    signed = json.loads(robot_call(feishu, "x", at).body)
    digest = hmac.new(b"1599360473\nkey", b"", hashlib.sha256).digest()  # Feishu: the words are the key
    assert (signed["timestamp"], signed["sign"]) == ("1599360473", base64.b64encode(digest).decode())
    query = parse_qs(urlsplit(robot_call(dingtalk, "x", at).url).query)
    digest = hmac.new(b"SECkey", b"1599360473500\nSECkey", hashlib.sha256).digest()
    assert query == {
        "access_token": ["abc"],
        "timestamp": ["1599360473500"],
        "sign": [base64.b64encode(digest).decode()],
    }


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (b'{"code": 0}', None),
        (b'{"StatusCode": 0, "StatusMessage": "success"}', None),
        (b'{"errcode": 0, "errmsg": "ok"}', None),
        (b'{"errcode": 310000, "errmsg": "sign not match"}', "310000"),
        (b'{"code": 19021}', "19021"),
        (b'{"code": "0"}', "0"),
        (b"[]", "no code"),
        (b'["code"]', "no code"),
        (b'"errcode"', "no code"),
        (b'{"code": "' + b"x" * 30 + b'"}', "x" * 20),
        (b'{"errcode": 0, "code": 7}', None),
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_an_answer_of_200_may_be_a_refusal(answer: bytes, refused: str | None) -> None:
    assert refusal_of(answer) == refused


def test_what_a_user_wrote_calls_on_nobody_and_fits() -> None:
    prompt = "<at user_id='all'>所有人</at>\r\n\u202e" + "长" * 5000
    body = {
        "type": "video.completed",
        "data": {"prompt": prompt, "model": "m", "id": "v", "url": "https://x/y"},
    }
    text = words_of("Lab", json.dumps(body))
    assert text.startswith("[Lab] 视频已完成 Video completed\n") and text.endswith("https://x/y")
    assert not set("<>\r\u202e") & set(text) and len(text.encode()) <= 2000


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (
            "video.completed",
            {"prompt": "a red\nfox", "model": "wan", "id": "v1", "url": "https://x/y"},
            "视频已完成 Video completed\n提示词 Prompt: a red fox\n模型 Model: wan\nID: v1\n观看 Watch: https://x/y",
        ),
        (
            "video.failed",
            {"prompt": "长" * 201, "model": "wan", "id": "v2", "error": {"message": "m" * 300}, "url": None},
            f"视频失败 Video failed\n提示词 Prompt: {'长' * 200}…\n模型 Model: wan\nID: v2\n原因 Reason: {'m' * 200}",
        ),
        (
            "video.cancelled",
            {"prompt": "长" * 200, "model": "wan", "id": "v3", "error": None},
            f"视频已取消 Video cancelled\n提示词 Prompt: {'长' * 200}\n模型 Model: wan\nID: v3",
        ),
        (
            "video.odd",
            {"prompt": None, "model": "wan", "id": "v4"},
            "video.odd\n提示词 Prompt: \n模型 Model: wan\nID: v4",
        ),
        (
            "budget.warning",
            {"tenant": "acme", "month": "2026-11", "spent": 80, "budget": 100.5, "currency": "CNY"},
            "预算预警 Budget warning\n租户 Tenant: acme\n月份 Month: 2026-11\n已用 Spent: 80.00 / 100.50 CNY",
        ),
        (
            "budget.exceeded",
            {
                "tenant": "acme",
                "month": "2026-11",
                "spent": 1,
                "budget": 1,
                "currency": "USD",
                "refusing": True,
            },
            "预算已用完 Budget spent\n租户 Tenant: acme\n月份 Month: 2026-11\n已用 Spent: 1.00 / 1.00 USD\n新请求将被拒绝 New work is refused",
        ),
        (
            "notice",
            {
                "events": [
                    {"action": "person.joined", "target": "Ann"},
                    {"action": "model.failed", "target": "wan", "reason": "no GPU"},
                    {"action": "odd", "target": "x"},
                ]
            },
            "运行通知 Notice\n新成员加入 Person joined: Ann\n模型无法启动 Model does not start: wan (no GPU)\nodd: x",
        ),
        (
            "notice",
            {"events": [{"action": "key.created", "target": str(n)} for n in range(22)], "more": 3},
            "\n".join(
                ["运行通知 Notice", *(f"新密钥 Key made: {n}" for n in range(20)), "另有 5 条 and 5 more"]
            ),
        ),
        (
            "notice",
            {"events": [{"action": "key.created", "target": str(n)} for n in range(21)]},
            "\n".join(
                ["运行通知 Notice", *(f"新密钥 Key made: {n}" for n in range(20)), "另有 1 条 and 1 more"]
            ),
        ),
        ("notice", {"events": []}, "运行通知 Notice"),
        ("notice", 3, "运行通知 Notice"),
    ],
)
def test_a_group_reads_what_happened_in_both_languages(kind: str, data: Any, words: str) -> None:
    assert words_of("Lab", json.dumps({"type": kind, "data": data})) == f"[Lab] {words}"


def test_what_cannot_be_read_is_told_as_a_notice_without_words() -> None:
    for odd in (
        "",
        "[]",
        "null",
        '{"type": 1}',
        '{"type": "video.x", "data": 3}',
        '{"type": "budget.x", "data": {}}',
        '{"type": "strange", "data": {}}',
        '{"type": "notice", "data": {}}',
        "[" * 100_000,
    ):
        assert words_of("Lab", odd) == "[Lab] 运行通知 Notice", odd


def test_a_text_is_cut_at_a_whole_character() -> None:
    for site in ("a", "ab", "abc"):  # so that the last one is cut wherever it can be
        body = json.dumps({"type": "notice", "data": {"events": [{"action": "x", "target": "长" * 900}]}})
        text = words_of(site, body)
        assert 1997 < len(text.encode()) <= 2000 and text.endswith("长")
    assert words_of("<a>\x07", "") == "[\u2039a\u203a] 运行通知 Notice"


def test_a_robot_is_shown_by_its_kind_and_host() -> None:
    assert shown_url(f"{DINGTALK}#s") == "dingtalk: oapi.dingtalk.com/•••"
    assert shown_url(None) is None
    url = robot_call(Robot(RobotKind.DINGTALK, "https://bots.example/send", "s"), "x", 1.0).url
    assert url.startswith("https://bots.example/send?timestamp=1000&sign=")
    assert robot_of("https://OPEN.feishu.cn/open-apis/bot/v2/hook/x#a#b") == Robot(
        RobotKind.FEISHU, "https://OPEN.feishu.cn/open-apis/bot/v2/hook/x", "a#b"
    )
    assert "你好" in robot_call(Robot(RobotKind.WECOM, WECOM), "你好", 1.0).body.decode()
