"""Budgets over HTTP: a warning in a header, 402 once it is spent, and admins that set them."""

from pathlib import Path

from tests.chat.test_chat_limits import ASK, PATH, answer
from tests.conftest import Stores
from tests.gateways import Gateway, bearer, chatting, running
from tests.relay.kit import Call

from turnout.tasks.task_rules import TenantId
from turnout.tenants.budget_rules import Budget, BudgetStanding, period_of
from turnout.tenants.key_rules import Role
from turnout.tenants.usage_rules import day_of

PRICES = {"*": 1.0}
ACME = TenantId("acme")
VIDEO = {"prompt": "a red ball", "model": "wan-tiny-t2v"}


async def stand(gateway: Gateway, spent: float, budget: Budget, period: str | None = None) -> None:
    inside = gateway.inside
    month = period or period_of(day_of(inside.now()))
    await gateway.stores.tenants.budgets.publish({ACME: BudgetStanding(month, budget, spent)})
    await inside.budgets.look()


async def test_chat_is_warned_and_then_refused_and_others_go_on(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, gpu_prices=PRICES) as chat, chat.client() as http:

        async def whole(call: Call) -> None:
            await call.json(answer(1, 1))

        await chat.replica(whole)
        other = bearer(await chat.gateway.key("other"))
        assert "x-turnout-budget" not in (await http.post(PATH, json=ASK)).headers
        await stand(chat.gateway, 8.5, Budget(10))
        warned = await http.post(PATH, json=ASK)
        assert warned.status_code == 200
        assert warned.headers["x-turnout-budget"].startswith(
            "warning; spent=8.50; budget=10.00; currency=USD; month=20"
        )
        await stand(chat.gateway, 10.0, Budget(10))
        refused = await http.post(PATH, json=ASK)
        assert (refused.status_code, refused.json()["error"]["code"]) == (402, "budget_exceeded")
        assert "10.00 USD" in refused.json()["error"]["message"] and "retry-after" not in refused.headers
        assert (await http.post(PATH, json=ASK, headers=other)).status_code == 200
        await stand(chat.gateway, 12.0, Budget(10, hard=False))
        assert (await http.post(PATH, json=ASK)).headers["x-turnout-budget"].startswith("exceeded; ")
        await stand(chat.gateway, 12.0, Budget(10), "2020-01")
        assert (await http.post(PATH, json=ASK)).status_code == 200, "that was another month"
        assert 'turnout_budgets{level="exceeded"} 1.0' in (await chat.gateway.http.get("/metrics")).text


async def test_a_video_is_refused_unless_it_was_accepted_before(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, gpu_prices=PRICES) as gateway:
        once = {"Idempotency-Key": "once"}
        first = await gateway.http.post("/v1/videos", json=VIDEO, headers=once)
        assert first.status_code == 200, first.text
        await stand(gateway, 9.0, Budget(10))
        warned = await gateway.http.post("/v1/videos", json=VIDEO)
        assert warned.headers["x-turnout-budget"].startswith("warning; ")
        await stand(gateway, 11.0, Budget(10))
        for path in ("/v1/videos", "/generate"):
            refused = await gateway.http.post(path, json=VIDEO)
            assert (refused.status_code, refused.json()["error"]["code"]) == (402, "budget_exceeded")
        again = await gateway.http.post("/v1/videos", json=VIDEO, headers=once)
        assert again.json()["id"] == first.json()["id"], "its client may have lost the answer"
        assert (await gateway.http.get(f"/v1/videos/{first.json()['id']}")).status_code == 200


async def test_admins_set_budgets_and_users_see_their_own(stores: Stores, tmp_path: Path) -> None:
    configured = {"acme": Budget(50), "*": Budget(5)}
    async with running(stores, tmp_path, gpu_prices=PRICES, budgets=configured) as gateway:
        http, admin = gateway.http, bearer(await gateway.key("ops", Role.ADMIN))
        (own,) = (await http.get("/v1/budgets")).json()["data"]
        assert (own["tenant"], own["month"], own["source"], own["spent"]) == ("acme", 50, "config", None)
        assert (await http.put("/v1/budgets/acme", json={"month": 1})).status_code == 403
        put = await http.put("/v1/budgets/acme", json={"month": 70, "soft": 0.5}, headers=admin)
        assert put.status_code == 200, put.text
        await stand(gateway, 40.0, Budget(70, 0.5))
        (own,) = (await http.get("/v1/budgets")).json()["data"]
        assert (own["month"], own["source"], own["spent"], own["level"]) == (70, "admin", 40, "warning")
        everyone = (await http.get("/v1/budgets", headers=admin)).json()["data"]
        assert [(b["tenant"], b["source"]) for b in everyone] == [("*", "config"), ("acme", "admin")]
        for wrong in (
            {"month": 0},
            {"month": 1, "soft": 2},
            {"month": 1, "webhook": "http://127.0.0.1/x"},
            {},
        ):
            refused = await http.put("/v1/budgets/acme", json=wrong, headers=admin)
            assert refused.status_code == 400, wrong
        assert (await http.put("/v1/budgets/a:b", json={"month": 1}, headers=admin)).status_code == 400
        assert (await http.delete("/v1/budgets/acme", headers=admin)).json()["deleted"]
        assert (await http.delete("/v1/budgets/acme", headers=admin)).status_code == 404
        acts = [e["action"] for e in (await http.get("/v1/audit", headers=admin)).json()["data"]]
        assert acts[:2] == ["budget.removed", "budget.set"]


async def test_without_prices_there_are_no_budgets(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path) as gateway:
        admin = bearer(await gateway.key("ops", Role.ADMIN))
        refused = await gateway.http.put("/v1/budgets/acme", json={"month": 1}, headers=admin)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_prices")


async def test_a_robot_that_is_sent_back_as_it_was_shown_stays(stores: Stores, tmp_path: Path) -> None:
    robot = "https://open.feishu.cn/open-apis/bot/v2/hook/abc#secret"
    async with running(
        stores, tmp_path, gpu_prices=PRICES, budgets={"acme": Budget(50, webhook=robot)}
    ) as gateway:
        admin = bearer(await gateway.key("ops", Role.ADMIN))
        (shown,) = (await gateway.http.get("/v1/budgets")).json()["data"]
        assert "abc" not in shown["webhook"] and "secret" not in shown["webhook"]
        body = {"month": 70, "webhook": shown["webhook"]}
        put = await gateway.http.put("/v1/budgets/acme", json=body, headers=admin)
        assert put.status_code == 200, put.text
        assert (await stores.tenants.budgets.all())[TenantId("acme")] == Budget(70, webhook=robot)
