"""The views of operators, and of people who are invited, in a state worth looking at: the second half of `views.tour`."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
from tests.page.conftest import Visitor
from tests.service import Service

GIB = 2**30


def _pull(state: str, name: str, repo: str, **more: Any) -> dict[str, Any]:
    """A pull as the service tells of it: there is no hub here."""
    of = 16 * GIB
    told = {
        "id": f"pull_{name}",
        "object": "pull",
        "name": name,
        "repo": repo,
        "hub": "huggingface",
        "state": state,
    }
    told |= {"bytes": of, "of": of, "reason": "", "asked_at": 1.0, "ended_at": None, "register_as": None}
    return {**told, "folder": f"/var/lib/turnout/models/{repo}", **more}


PULLS = [
    _pull("running", "wan2.2-ti2v-5b", "Wan-AI/Wan2.2-TI2V-5B-Diffusers", bytes=5 * GIB),
    _pull(
        "failed", "qwen3-8b", "Qwen/Qwen3-8B", bytes=3 * GIB, reason="The hub took too long.", ended_at=2.0
    ),
    _pull(
        "completed", "qwen3-0.6b", "Qwen/Qwen3-0.6B-GGUF", register_as={"alias": "qwen3-0.6b"}, ended_at=2.0
    ),
]
VERDICT = {
    "object": "verdict",
    "repo": "Wan-AI/Wan2.2-TI2V-5B-Diffusers",
    "hub": "huggingface",
    "fits": False,
    "words": "It needs 24.1 GiB of GPU memory; the largest GPU here has 16.0 GiB.",
    "download_bytes": 34 * GIB,
    "free_bytes": 210 * GIB,
}


async def operating(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    tab = visitor.tab
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as client:
        waits = [
            (await client.post("/v1/videos", json={"prompt": "a queue", "steps": 60})).json()["id"]
            for _ in range(4)  # two are to be there still when the queue has been looked at
        ]
        await visitor.go("operate/overview")
        await tab.locator("tbody tr").first.wait_for()
        await tab.locator(".plot canvas").nth(4).wait_for()
        yield "operate-overview"
        await visitor.go("operate/tasks")
        await tab.locator("tbody tr").nth(1).wait_for()
        yield "operate-tasks"
        await visitor.go(f"operate/logs/task/{waits[0]}")
        await tab.locator(".log p").first.wait_for()
        yield "operate-logs"
        for video in waits:
            await client.delete(f"/v1/videos/{video}")
    for name in ("models", "workers", "keys", "audit"):
        await visitor.go(f"operate/{name}")
        await tab.locator(".entry, tbody tr").first.wait_for()
        yield f"operate-{name}"
    async for name in _spending(visitor, service):
        yield name
    async for name in _pulling(visitor):
        yield name
    for name, button, ready in (
        ("models", ".row-spread .button-primary", ".register"),
        ("models", ".entry .button-danger", "dialog .button-danger"),
        ("workers", ".row-spread .button-primary", "dialog .button-primary"),
        ("workers", ".entry .button-danger", "dialog .button-danger"),
        ("keys", ".row-spread .button-primary", "dialog form"),
        ("keys", "tbody .button-danger", "dialog .button-danger"),
    ):
        await visitor.go(f"operate/{name}")
        await tab.locator(button).first.click()
        await tab.locator(ready).wait_for()
        yield f"operate-{name}-{'remove' if 'danger' in button else 'add'}"
        if (name, ready) == ("workers", "dialog .button-primary"):
            await tab.locator(ready).click()
            await tab.locator("dialog .copyable").wait_for()
            yield "operate-workers-command"
        await tab.keyboard.press("Escape")


async def _spending(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    tab = visitor.tab
    async with service.client() as client:
        for tenant, month in (("default", 0.01), ("film-school", 250.0)):
            await client.put(f"/v1/budgets/{tenant}", json={"month": month, "hard": tenant != "default"})
    await visitor.go("operate/usage")
    await tab.locator(".bar i").first.wait_for()
    await tab.locator(".entry").nth(1).wait_for()
    yield "operate-usage"
    await tab.locator("#budgets-title").evaluate("title => title.scrollIntoView()")
    yield "operate-budgets"
    await tab.locator("section").last.locator(".row-spread button").click()
    await tab.locator("dialog form").wait_for()
    yield "operate-budgets-add"
    await tab.keyboard.press("Escape")
    async with service.client() as client:
        for tenant in ("default", "film-school"):
            await client.delete(f"/v1/budgets/{tenant}")


async def _pulling(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab

    async def tell(route: Any) -> None:
        told = {"object": "list", "offered": True, "free_bytes": 210 * GIB, "data": PULLS}
        await route.fulfill(json=VERDICT if route.request.method == "POST" else told)

    await tab.route("**/v1/pulls**", tell)
    await visitor.go("operate/models")
    await tab.locator("#pulls-title").evaluate("title => title.scrollIntoView()")
    yield "operate-pulls"
    await tab.evaluate("scrollTo(0, 0)")
    await tab.locator(".row-spread .button").first.click()
    await tab.locator("dialog .preset").first.wait_for()
    yield "operate-pull"
    await tab.locator("dialog .preset").first.click()
    await tab.locator("dialog .note").wait_for()
    yield "operate-pull-verdict"
    await tab.keyboard.press("Escape")
    await tab.unroute_all(behavior="wait")  # or what is being answered would be answered twice


async def people(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    tab = visitor.tab
    async with service.client() as client:
        made = await client.post(
            "/v1/invites", json={"uses": 20, "note": "The class of November", "limits": {"videos": 5}}
        )
        link = f"{service.url}/#invite={made.json()['token']}"
    await tab.goto(f"{service.url}/#invite=i-nothing.nothing-at-all")
    await tab.locator(".login-link a").wait_for()
    yield "invite-over"
    await tab.goto(link)
    await tab.locator(".login-box input").first.fill("Ada Lovelace")
    yield "invite"
    await tab.locator(".login-box input").nth(1).fill("ada@example.com")
    await tab.locator(".login-box button[type=submit]").click()
    await tab.locator(".composer").wait_for()
    await visitor.go("account")
    await tab.locator(".tiles dd").first.wait_for()
    yield "account"
    await tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    yield "account-end"
    await tab.locator("section .row-spread button").nth(1).click()
    await tab.locator("dialog form").wait_for()
    yield "account-key"
    await tab.locator("dialog button[type=submit]").click()
    await tab.locator("dialog .copyable").wait_for()
    yield "account-key-made"
    await tab.keyboard.press("Escape")
    await tab.locator(".account .button-danger").last.click()
    await tab.locator("dialog form").wait_for()
    yield "account-delete"
    await visitor.enter(service.api_key)
    await visitor.go("operate/people")
    await tab.locator("tbody tr").first.wait_for()
    yield "operate-people"
    await tab.locator(".row-spread .button-primary").click()
    await tab.locator("dialog form").wait_for()
    yield "operate-people-invite"
    await tab.locator("dialog button[type=submit]").click()
    await tab.locator("dialog .copyable").wait_for()
    yield "operate-people-link"
    await tab.keyboard.press("Escape")
    await tab.locator("tbody .button").first.click()
    await tab.locator("dialog form").wait_for()
    yield "operate-people-change"
    await tab.keyboard.press("Escape")
