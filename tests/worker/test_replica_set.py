"""Orders are the whole truth: whatever was there before, the replicas come to match them."""

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import wait_until
from tests.engine_servers.engines import marked
from tests.pace import patient
from tests.worker.conftest import MODEL, Bench

from turnout.engines.servers.engine_servers import Launch
from turnout.errors import NotFound
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.worker.lifecycle_rules import ENDED_PHASES
from turnout.worker.order_rules import OrderRules
from turnout.worker.replica_set import ChangeWant, Forget, Held, ReplicaSet, Start, reconcile

NAMES = st.sampled_from([f"r{n}" for n in range(5)])
HAVE = st.dictionaries(
    NAMES.map(lambda name: own(name)),
    st.builds(Held, st.sampled_from(list(Phase)), st.sampled_from(list(Want))),
)
ORDERS = st.dictionaries(NAMES, st.sampled_from(list(Want))).map(
    lambda wants: [order(id_, want) for id_, want in wants.items()]
)


_RUN = secrets.token_hex(4)  # other runs of these tests may be under way on the machine


def own(id_: str) -> ReplicaId:
    return ReplicaId(f"{_RUN}-{id_}")


def order(id_: str, want: Want = Want.READY, model: Model = MODEL) -> ReplicaOrder:
    return ReplicaOrder(replica=own(id_), model=model, gpus=(), want=want)


@given(HAVE, ORDERS)
def test_after_reconciling_there_is_nothing_left_to_do(
    have: dict[ReplicaId, Held], orders: list[ReplicaOrder]
) -> None:
    after = dict(have)
    for action in reconcile(have, orders):
        match action:
            case Start(new):
                assert new.replica not in after, "started twice"
                assert new.want is not Want.GONE
                after[new.replica] = Held(Phase.STARTING, new.want)
            case ChangeWant(replica, want):
                assert after[replica].phase not in ENDED_PHASES, "what has ended cannot be told anything"
                after[replica] = replace(after[replica], want=want)
            case Forget(replica):
                assert after.pop(replica).phase in ENDED_PHASES, "forgot one that lives"
    assert reconcile(after, orders) == []
    wanted = {o.replica: o.want for o in orders}
    for replica, held in after.items():
        if held.phase in ENDED_PHASES:
            assert replica in wanted, "kept one that nobody asks about"
        else:
            assert held.want is wanted.get(replica, Want.GONE)
    assert {r for r, w in wanted.items() if w is not Want.GONE} <= after.keys()


async def test_what_is_ordered_starts_and_what_is_not_leaves(bench: Bench) -> None:
    changes: list[int] = []
    async with ReplicaSet(bench.context(), lambda: changes.append(1)) as replicas:
        replicas.follow([order("a"), order("b")])
        replicas.follow([order("a"), order("b")])
        await wait_until(
            lambda: [r.phase for r in replicas.reports()] == [Phase.READY] * 2, "both to be ready"
        )
        told = len(changes)
        replicas.follow([order("b")])
        assert len(changes) > told
        await wait_until(
            lambda: {r.id: r.phase for r in replicas.reports()}[own("a")] is Phase.GONE, "a to be gone"
        )
        replicas.follow([order("b")])
        assert [r.id for r in replicas.reports()] == [own("b")]
        with pytest.raises(NotFound):
            replicas.find(own("a"))
        await replicas.drain()
        assert [r.phase for r in replicas.reports()] == [Phase.GONE]
        replicas.follow([order("c")])
        assert [r.id for r in replicas.reports()] == []
    assert marked(own("a")) == marked(own("b")) == []


async def test_a_failed_replica_is_reported_and_not_started_again(bench: Bench) -> None:
    broken = replace(
        MODEL,
        engine=EngineKind.VLLM,
        weights="x",
        server=replace(MODEL.server, arguments=("--exit=1", "--say=CUDA out of memory")),
    )
    async with ReplicaSet(bench.context(), lambda: None) as replicas:
        replicas.follow([order("f", model=broken)])
        await wait_until(lambda: replicas.reports()[0].phase is Phase.FAILED, "it to fail")
        replicas.follow([order("f", model=broken)])
        assert "GPU memory" in replicas.reports()[0].detail and not replicas.reports()[0].refused
        replicas.follow([])
        assert replicas.reports() == ()


async def test_an_order_that_this_machine_does_not_follow_is_answered_as_such(bench: Bench) -> None:
    def plan(replica: ReplicaId, model: Model, gpus: tuple[int, ...]) -> Launch:
        OrderRules(frozenset()).check(replica, model, gpus, ())
        raise AssertionError("it was allowed")

    async with ReplicaSet(replace(bench.context(), plan=plan), lambda: None) as replicas:
        replicas.follow([order("r")])
        await wait_until(lambda: replicas.reports()[0].phase is Phase.FAILED, "it to be refused")
        [report] = replicas.reports()
        assert report.refused and report.detail.startswith("this worker refuses the order")


async def test_leaving_in_a_hurry_leaves_no_engine(bench: Bench) -> None:
    async with ReplicaSet(bench.context(), lambda: None) as replicas:
        replicas.follow([order("hurry"), order("haste")])
        await wait_until(lambda: any(r.phase is Phase.READY for r in replicas.reports()), "one to be ready")
    assert marked(own("hurry")) == marked(own("haste")) == []


async def test_leftovers_are_swept_before_anything_starts(bench: Bench, state_dir: Path) -> None:
    replica = bench.replica()
    await wait_until(lambda: replica.phase is Phase.READY, "the engine of an earlier worker")
    async with ReplicaSet(bench.context(), lambda: None):
        await wait_until(lambda: marked(replica.id) == [], "it to be swept away")
    await asyncio.wait_for(bench.lives[0], patient(10))
    assert replica.phase is Phase.FAILED
