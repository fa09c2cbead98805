"""A worker and a gateway that comes, goes, forgets and lags."""

import asyncio
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.engine_servers.engines import marked
from tests.pace import patient
from tests.worker.conftest import MODEL, Bench
from tests.worker.scripted_gateway import KEY, ScriptedGateway
from tests.workers import self_signed

from turnout.errors import Misconfigured
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.run.client_tls import client_tls
from turnout.worker.advertised_url import check_advertised, reachable_host
from turnout.worker.joiner import Identity, Joiner, JoinSettings, load_identity, save_identity
from turnout.worker.replica_set import ReplicaSet

MACHINE = Machine((), 2**33, 2**32)


@dataclass(frozen=True)
class Working:
    joiner: Joiner
    replicas: ReplicaSet
    talking: asyncio.Task[None]

    async def leave(self) -> None:
        self.joiner.leave()
        await asyncio.wait_for(self.talking, patient(20))


@asynccontextmanager
async def worker(bench: Bench, gateway: ScriptedGateway, **changes: object) -> AsyncIterator[Working]:
    values = {
        "join": f"{gateway.url}/",
        "key": KEY,
        "name": "box",
        "url": "http://10.0.0.1:9000",
        "state": bench.state_dir / "worker.json",
        "tls": client_tls(None),
        **changes,
    }
    joiner = Joiner(JoinSettings(**values), lambda: MACHINE)  # type: ignore[arg-type]
    async with ReplicaSet(bench.context(), joiner.changed) as replicas:
        talking = asyncio.create_task(joiner.run(replicas))
        try:
            yield Working(joiner, replicas, talking)
        finally:
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    gateway = ScriptedGateway()
    await gateway.start()
    yield gateway
    await gateway.die()


@pytest.fixture
def replica() -> ReplicaId:
    return ReplicaId(f"r-{secrets.token_hex(4)}")


def order(replica: ReplicaId, want: Want = Want.READY) -> ReplicaOrder:
    return ReplicaOrder(replica=replica, model=MODEL, gpus=(), want=want)


async def test_orders_arrive_at_once_and_so_does_news(
    bench: Bench, gateway: ScriptedGateway, replica: ReplicaId
) -> None:
    """No heartbeat ends by itself here: what waited for the next one would not come."""
    gateway.heartbeat_s, gateway.holds = 30.0, True
    async with worker(bench, gateway) as working:
        await wait_until(lambda: len(gateway.heartbeats) >= 2, "a heartbeat that is held open")
        await gateway.order(order(replica))
        await wait_until(
            lambda: gateway.phase(replica) is Phase.READY, "the gateway to hear that it is ready"
        )
        assert gateway.last[replica].address
        assert gateway.heartbeats[-1].seen == gateway.orders.version
        await gateway.order()
        await wait_until(lambda: gateway.phase(replica) is Phase.GONE, "the gateway to hear that it is gone")
        await gateway.order()
        await wait_until(lambda: gateway.last == {}, "it to be forgotten")
        await working.leave()
    assert len(gateway.registrations) == 1
    assert gateway.registrations[0].url == "http://10.0.0.1:9000"


async def test_a_gateway_that_dies_is_found_again_and_replicas_serve_meanwhile(
    bench: Bench, gateway: ScriptedGateway, replica: ReplicaId
) -> None:
    async with worker(bench, gateway) as working:
        await gateway.order(order(replica))
        await wait_until(lambda: gateway.phase(replica) is Phase.READY, "it to be ready")
        before = marked(replica)
        await gateway.die()
        working.replicas.find(replica).admit().end()
        heard = len(gateway.heartbeats)
        await gateway.start()
        await wait_until(lambda: len(gateway.heartbeats) > heard, "the worker to come back")
        assert gateway.phase(replica) is Phase.READY
        assert marked(replica) == before, "the engine was not restarted"
        assert gateway.registrations[-1].known_as == "w1"
        await working.leave()


async def test_a_forgotten_worker_registers_again_as_itself(
    bench: Bench, gateway: ScriptedGateway, replica: ReplicaId
) -> None:
    async with worker(bench, gateway) as working:
        await gateway.order(order(replica))
        await wait_until(lambda: gateway.phase(replica) is Phase.READY, "it to be ready")
        gateway.forgotten = True
        await gateway.nudge()
        await wait_until(lambda: len(gateway.registrations) == 2, "the worker to register again")
        assert gateway.registrations[1].known_as == "w1"
        assert gateway.registrations[1].secret == "secret1"
        await wait_until(
            lambda: working.joiner.identity == Identity(WorkerId("w1"), "secret2"),
            "it to take the new secret",
        )
        heard = len(gateway.heartbeats)
        await wait_until(lambda: len(gateway.heartbeats) > heard, "heartbeats to go on")
        assert gateway.phase(replica) is Phase.READY
        await working.leave()


async def test_late_orders_change_nothing(bench: Bench, gateway: ScriptedGateway, replica: ReplicaId) -> None:
    async with worker(bench, gateway) as working:
        await gateway.order(order(replica), version=7)
        await wait_until(lambda: gateway.phase(replica) is Phase.READY, "it to be ready")
        heard = len(gateway.heartbeats)
        await gateway.order(version=6)
        await wait_until(lambda: len(gateway.heartbeats) > heard + 1, "the late orders to be answered")
        assert gateway.phase(replica) is Phase.READY
        assert gateway.heartbeats[-1].seen == 7
        assert len(gateway.heartbeats) < heard + 20, "a gateway that lags is not pressed"
        await gateway.order(version=8)
        await wait_until(lambda: gateway.phase(replica) is Phase.GONE, "newer orders to count")
        await working.leave()


async def test_a_restarted_worker_keeps_its_name_and_its_secret_is_private(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    path = bench.state_dir / "worker.json"
    async with worker(bench, gateway):
        await wait_until(lambda: len(gateway.heartbeats) > 0, "the first heartbeat")
    assert load_identity(path) == Identity("w1", "secret1")  # type: ignore[arg-type]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with worker(bench, gateway):
        await wait_until(lambda: len(gateway.registrations) == 2, "the second registration")
    assert (gateway.registrations[1].known_as, gateway.registrations[1].secret) == ("w1", "secret1")


async def test_a_name_that_is_no_longer_its_own_is_given_up(bench: Bench, gateway: ScriptedGateway) -> None:
    async with worker(bench, gateway):
        await wait_until(lambda: len(gateway.heartbeats) > 0, "the first heartbeat")
    gateway.refuse_known = True
    async with worker(bench, gateway):
        await wait_until(lambda: len(gateway.registrations) >= 3, "another registration")
    assert [r.known_as for r in gateway.registrations] == [None, "w1", None]


async def test_a_wrong_key_is_refused_without_losing_the_name(bench: Bench, gateway: ScriptedGateway) -> None:
    async with worker(bench, gateway):
        await wait_until(lambda: len(gateway.heartbeats) > 0, "the first heartbeat")
    heard = len(gateway.heartbeats)
    async with worker(bench, gateway, key="wrong") as working:
        with pytest.raises(ExceptionGroup) as refused:
            await asyncio.wait_for(working.talking, patient(20))
        assert refused.group_contains(Misconfigured, match="refuses the worker key.*unknown key")
    assert len(gateway.heartbeats) == heard
    assert load_identity(bench.state_dir / "worker.json") is not None


async def test_leaving_drains_and_says_so(bench: Bench, gateway: ScriptedGateway, replica: ReplicaId) -> None:
    async with worker(bench, gateway) as working:
        await gateway.order(order(replica))
        await wait_until(lambda: gateway.phase(replica) is Phase.READY, "it to be ready")
        in_flight = working.replicas.find(replica).admit()
        working.joiner.leave()
        await wait_until(
            lambda: gateway.phase(replica) is Phase.STOPPING, "the gateway to hear that it stops"
        )
        assert gateway.heartbeats[-1].leaving
        late = ReplicaId(f"{replica}-late")
        await gateway.order(order(replica), order(late))
        await wait_until(
            lambda: gateway.heartbeats[-1].seen == gateway.orders.version, "the late order to be seen"
        )
        assert not working.talking.done()
        in_flight.end()
        await asyncio.wait_for(working.talking, patient(20))
        assert gateway.phase(replica) is Phase.GONE and gateway.phase(late) is None
        assert gateway.heartbeats[-1].leaving
    assert marked(replica) == []


async def test_tls_is_verified(bench: Bench, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    gateway = ScriptedGateway(certificate=(certificate, key))
    await gateway.start()
    try:
        async with worker(bench, gateway) as working:
            await wait_until(
                lambda: "CERTIFICATE_VERIFY" in working.joiner.trouble, "the certificate to be refused"
            )
            assert gateway.registrations == []
        async with worker(bench, gateway, tls=client_tls(certificate)):
            await wait_until(lambda: len(gateway.heartbeats) > 0, "a heartbeat over TLS")
    finally:
        await gateway.die()


async def test_a_key_that_is_refused_later_is_waited_out(bench: Bench, gateway: ScriptedGateway) -> None:
    async with worker(bench, gateway) as working:
        await wait_until(lambda: len(gateway.heartbeats) > 0, "a heartbeat")
        gateway.key, gateway.forgotten = "another", True
        await gateway.nudge()
        await wait_until(lambda: "unknown key" in working.joiner.trouble, "the key to be refused")
        gateway.key = KEY
        seen = len(gateway.heartbeats)
        await wait_until(lambda: len(gateway.heartbeats) > seen, "the worker to be back")


async def test_whose_own_key_was_revoked_and_whose_code_was_used_ends(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    """It asked with the code for ever, if it did not hear that it was evicted."""
    save_identity(bench.state_dir / "worker.json", Identity(WorkerId("w1"), "secret1", "own"))
    gateway.key = "own"
    async with worker(bench, gateway, key="jc-used") as working:
        await wait_until(lambda: len(gateway.heartbeats) > 0, "a heartbeat")
        gateway.key, gateway.forgotten = "another", True
        await gateway.nudge()
        with pytest.raises(ExceptionGroup) as refused:
            await asyncio.wait_for(working.talking, patient(20))
        assert refused.group_contains(Misconfigured, match="refuses the worker key or join code")


@pytest.mark.parametrize(
    "url", ["http://0.0.0.0:9000", "http://[::]:9000", "10.0.0.1:9000", "ftp://x", "http://"]
)
def test_an_address_that_nobody_can_reach_is_not_advertised(url: str) -> None:
    with pytest.raises(Misconfigured):
        check_advertised(url)


def test_all_interfaces_become_the_one_towards_the_gateway() -> None:
    assert reachable_host("0.0.0.0", "http://127.0.0.1:8000") == "127.0.0.1"
    assert reachable_host("192.0.2.7", "http://gateway.invalid") == "192.0.2.7"
    assert reachable_host("box.example", "http://gateway.invalid") == "box.example"


def test_an_ipv6_address_has_brackets_in_the_advertised_url() -> None:
    assert reachable_host("2001:db8::7", "http://gateway.invalid") == "[2001:db8::7]"
