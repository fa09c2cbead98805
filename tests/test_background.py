"""Background loops are kept running, whatever ends one, and none runs elsewhere."""

import ast
import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import wait_until
from turnout.background import BackgroundLoops
from turnout.errors import Misconfigured

PACKAGE = Path(__file__).parents[1] / "src" / "turnout"


async def test_whatever_ends_a_loop_it_is_started_again_and_the_others_go_on() -> None:
    began: Counter[str] = Counter()
    endings = {"raises": OSError(28, "No space left on device"), "returns": None, "is cancelled": None}

    def ending(name: str):
        async def work() -> None:
            began[name] += 1
            if began[name] < 3:
                if name == "is cancelled":
                    raise asyncio.CancelledError
                if (error := endings[name]) is not None:
                    raise error
                return
            await asyncio.sleep(1000)

        return work

    async def steady() -> None:
        began["steady"] += 1
        await asyncio.sleep(1000)

    loops = BackgroundLoops({name: ending(name) for name in endings})
    loops.add("steady", steady)
    async with loops.running():
        await wait_until(lambda: all(began[name] == 3 for name in endings), "all loops to be started again")
        assert loops.alive
        states = loops.states()
        assert states.pop("steady") == "ok"
        assert all(state.startswith("failed (") for state in states.values()), "said at once"
        assert loops.restarts() == {**dict.fromkeys(endings, 2), "steady": 0}
    assert began["steady"] == 1
    assert not loops.alive


async def test_a_loop_can_be_added_and_removed_while_the_others_run() -> None:
    log: list[str] = []

    async def work() -> None:
        log.append("began")
        try:
            await asyncio.sleep(1000)
        finally:
            log.append("ended")

    loops = BackgroundLoops()
    async with loops.running():
        loops.add("late", work)
        await wait_until(lambda: log == ["began"], "the added loop")
        with pytest.raises(ValueError, match="already"):
            loops.add("late", work)
        await loops.remove("late")
        assert log == ["began", "ended"]
        assert loops.states() == {}


async def test_what_no_restart_can_mend_ends_them_all() -> None:
    async def work() -> None:
        raise Misconfigured("the key is wrong")

    with pytest.RaisesGroup(Misconfigured):
        async with BackgroundLoops({"a": work}, fatal=(Misconfigured,)).running():
            await asyncio.sleep(30)


# Tasks and threads that are made outside of `BackgroundLoops`, and who notices their end. All others are loops.
_AWAITED = "the coroutine that makes it waits for it"
_REQUEST = "ends with its request or connection"
_MADE_ELSEWHERE = {
    "tenants/oidc.py": (1, "a fetch of keys: it logs why it failed, and the next token starts another"),
    "telemetry/otlp.py": (1, "the end of a process waits for it, for a while"),
    "worker/tunnel/mux.py": (6, _REQUEST),
    "worker/tunnel/worker_end.py": (1, "one tunnel: dialled again by the loop when it is gone"),
    "background.py": (3, "the mechanism itself"),
    "cli/up_command.py": (1, "the demo of `turnout up`"),
    "cli/weights_commands.py": (1, _AWAITED),
    "gang/attempt.py": (3, _AWAITED),
    "people/belongings.py": (1, _AWAITED),
    "chat/conversation_store.py": (1, _AWAITED),
    "gang/leader.py": (1, _AWAITED),
    "tasks/gang_routes.py": (1, _REQUEST),
    "gang/heartbeat.py": (1, "the supervisor ends the gang when it is silent"),
    "chat/chat_limits.py": (1, _AWAITED),
    "chat/direct.py": (2, "ends with the session; the loop looks for the worker again"),
    "tasks/event_streams.py": (2, _REQUEST),
    "tasks/image_routes.py": (2, _REQUEST),
    "processes/local_parts.py": (5, "an error in one ends `turnout up`"),
    "fleet/hosts/ray/ray_ranks.py": (1, "the life of one rank, which the supervisor watches"),
    "tasks/webhooks.py": (1, _AWAITED),
    "telemetry/log.py": (1, "swallows every error"),
    "worker/peer_connections.py": (1, _REQUEST),
    "relay/client_connection.py": (1, _REQUEST),
    "relay/pipelined_connection.py": (1, _REQUEST),
    "relay/exchange.py": (2, _REQUEST),
    "fleet/hosts/ray/relay_socket.py": (2, _AWAITED),
    "fleet/hosts/ray/gang_replica.py": (3, "Serve checks the replica's health"),
    "fleet/hosts/ray/leader_watch.py": (1, "an error ends the manager, and Ray starts another"),
    "fleet/hosts/ray/manager_actor.py": (2, "an error ends the process, and Ray starts another"),
    "run/run_gateway.py": (1, "an error ends the gateway, whose group it is in"),
    "run/tls.py": (1, "ends with its connection, by its own deadline"),
    "store/outbound.py": (2, "a look-up: whoever asked hears how it ended, and its place is free then"),
    "telemetry/metrics.py": (1, _AWAITED),
    "run/run_rank.py": (
        1,
        "waits for one signal; without it the pod is killed at the end of its grace period",
    ),
    "run/run_worker.py": (1, "the worker's server: its end ends the worker"),
    "worker/direct_access.py": (2, _REQUEST),
    "worker/joiner.py": (2, _AWAITED),
    "worker/replica_owner.py": (7, "an error ends the replica, which the manager replaces"),
    "worker/replica_set.py": (1, "catches every error, and the replica counts as failed"),
}


def test_no_task_is_made_where_its_end_would_go_unnoticed() -> None:
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("create_task", "ensure_future", "start_soon", "Thread"):
                    found[str(path.relative_to(PACKAGE))] += 1
    assert dict(found) == {name: count for name, (count, _) in _MADE_ELSEWHERE.items()}, (
        "run a loop in BackgroundLoops; if it is no loop, say here who notices its end"
    )


def test_nothing_waits_in_a_way_that_can_lose_a_cancellation() -> None:
    """Up to Python 3.11 `asyncio.wait_for` returns when what it waits for ends at the moment it is cancelled (gh-86296);
    `asyncio.timeout` does not."""
    assert [str(path) for path in PACKAGE.rglob("*.py") if "asyncio.wait_for(" in path.read_text()] == []
