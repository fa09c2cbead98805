"""Group robots of Feishu, DingTalk and WeCom: webhooks that want messages in formats of their own. Pure.

A robot is known by the host of its URL; one on a private server by a word before the URL: `feishu+https://…`. The secret that it
signs with stands after `#`, which is sent to nobody. All of the URL is a secret: whoever has it writes to the group.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast
from urllib.parse import quote, urlsplit

_MAX_TEXT_BYTES = 2000  # WeCom takes 2048
_MAX_PROMPT_CHARS = 200
_MAX_EVENTS = 20
_HARMLESS = {ord("<"): "\u2039", ord(">"): "\u203a"}


class RobotKind(StrEnum):
    FEISHU = "feishu"
    DINGTALK = "dingtalk"
    WECOM = "wecom"


_HOSTS = {
    ("open.feishu.cn", "/open-apis/bot/"): RobotKind.FEISHU,
    ("open.larksuite.com", "/open-apis/bot/"): RobotKind.FEISHU,
    ("oapi.dingtalk.com", "/robot/send"): RobotKind.DINGTALK,
    ("qyapi.weixin.qq.com", "/cgi-bin/webhook/send"): RobotKind.WECOM,
}


@dataclass(frozen=True, slots=True)
class Robot:
    kind: RobotKind
    url: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class RobotCall:
    url: str
    body: bytes


def robot_of(url: str) -> Robot | None:
    """None for any other webhook."""
    plain, _, secret = url.partition("#")
    for kind in RobotKind:
        if plain.startswith((f"{kind}+https://", f"{kind}+http://")):
            return Robot(kind, plain.removeprefix(f"{kind}+"), secret)
    try:
        parts = urlsplit(plain)
        host = (parts.hostname or "").lower()
    except ValueError:
        return None
    if parts.scheme != "https":
        return None
    for (known, path), kind in _HOSTS.items():
        if host == known and parts.path.startswith(path):
            return Robot(kind, plain, secret)
    return None


def called_url(url: str) -> str:
    """What is called for a webhook's URL."""
    robot = robot_of(url)
    return url if robot is None else robot.url


def shown_url(url: str | None) -> str | None:
    """A webhook's URL as others may see it: of a robot the host alone."""
    robot = None if url is None else robot_of(url)
    return url if robot is None else f"{robot.kind}: {urlsplit(robot.url).hostname}/•••"


def robot_call(robot: Robot, text: str, now: float) -> RobotCall:
    """One message, signed as of `now`."""
    match robot.kind:
        case RobotKind.FEISHU:
            said: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
            if robot.secret:
                stamp = str(int(now))
                said |= {"timestamp": stamp, "sign": _digest(f"{stamp}\n{robot.secret}", "")}
            return RobotCall(robot.url, _json(said))
        case RobotKind.DINGTALK:
            url, said = robot.url, {"msgtype": "text", "text": {"content": text}}
            if robot.secret:
                stamp = str(int(now * 1000))
                sign = quote(_digest(robot.secret, f"{stamp}\n{robot.secret}"), safe="")
                url += f"{'&' if '?' in url else '?'}timestamp={stamp}&sign={sign}"
            return RobotCall(url, _json(said))
        case RobotKind.WECOM:
            return RobotCall(robot.url, _json({"msgtype": "text", "text": {"content": text}}))


def refusal_of(answer: bytes) -> str | None:
    """Robots answer 200 whatever they think of it: the code by which one refused, None where it took the message."""
    try:
        found: object = json.loads(answer)
    except (ValueError, RecursionError):
        return "no JSON"
    said = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    for name in ("errcode", "code", "StatusCode"):
        if name in said:
            return None if said[name] == 0 else str(said[name])[:20]
    return "no code"


def words_of(site: str, body: str) -> str:
    """A webhook's body as a group reads it, in both languages. Nothing in it calls on anybody: "<at …>" is only text."""
    try:
        payload: Any = json.loads(body)
        kind, data = str(payload["type"]), cast("Mapping[str, Any]", payload["data"])
        lines = _LINES[kind.partition(".")[0]](data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kind, lines = "notice", []
    text = "\n".join([f"[{site}] {_TITLES.get(kind, kind)}", *lines])
    kept = "".join(c for c in text if c == "\n" or c.isprintable()).translate(_HARMLESS)
    return kept.encode()[:_MAX_TEXT_BYTES].decode(errors="ignore")


_TITLES = {
    "video.completed": "视频已完成 Video completed",
    "video.failed": "视频失败 Video failed",
    "video.cancelled": "视频已取消 Video cancelled",
    "budget.warning": "预算预警 Budget warning",
    "budget.exceeded": "预算已用完 Budget spent",
    "notice": "运行通知 Notice",
}
_ACTIONS = {
    "person.joined": "新成员加入 Person joined",
    "person.changed": "成员变更 Person changed",
    "person.disabled": "成员已停用 Person disabled",
    "person.enabled": "成员已恢复 Person enabled",
    "person.removed": "成员已移除 Person removed",
    "invite.created": "新邀请 Invite made",
    "invite.revoked": "邀请已吊销 Invite revoked",
    "key.created": "新密钥 Key made",
    "key.rotated": "密钥已轮换 Key rotated",
    "key.revoked": "密钥已吊销 Key revoked",
    "worker.registered": "worker 已加入 Worker joined",
    "worker.drained": "worker 已排空 Worker drained",
    "worker.evicted": "worker 已移除 Worker evicted",
    "model.registered": "模型已注册 Model registered",
    "model.removed": "模型已移除 Model removed",
    "model.failed": "模型无法启动 Model does not start",
}


def _video_lines(data: Mapping[str, Any]) -> list[str]:
    prompt = str(data.get("prompt") or "").replace("\n", " ")
    short = prompt if len(prompt) <= _MAX_PROMPT_CHARS else f"{prompt[:_MAX_PROMPT_CHARS]}…"
    lines = [f"提示词 Prompt: {short}", f"模型 Model: {data.get('model')}", f"ID: {data.get('id')}"]
    error = data.get("error")
    if isinstance(error, dict):
        lines.append(f"原因 Reason: {str(cast('dict[str, Any]', error).get('message'))[:_MAX_PROMPT_CHARS]}")
    url = data.get("url")
    return [*lines, f"观看 Watch: {url}"] if isinstance(url, str) else lines


def _budget_lines(data: Mapping[str, Any]) -> list[str]:
    lines = [
        f"租户 Tenant: {data['tenant']}",
        f"月份 Month: {data['month']}",
        f"已用 Spent: {data['spent']:.2f} / {data['budget']:.2f} {data['currency']}",
    ]
    return [*lines, "新请求将被拒绝 New work is refused"] if data.get("refusing") else lines


def _notice_lines(data: Mapping[str, Any]) -> list[str]:
    events = cast("list[dict[str, Any]]", data["events"])
    lines = [
        f"{_ACTIONS.get(one['action'], one['action'])}: {one['target']}"
        + (f" ({one['reason']})" if one.get("reason") else "")
        for one in events[:_MAX_EVENTS]
    ]
    more = int(data.get("more") or 0) + max(0, len(events) - _MAX_EVENTS)
    return [*lines, f"另有 {more} 条 and {more} more"] if more else lines


_LINES = {"video": _video_lines, "budget": _budget_lines, "notice": _notice_lines}


def _digest(key: str, message: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), message.encode(), hashlib.sha256).digest()).decode()


def _json(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False).encode()
