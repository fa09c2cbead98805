"""GPU time is booked once, for what a worker was ordered to hold and for no longer than that, in tables that stay as small as
the fleet."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.gang_rules import GangReport, RankReport
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.fleet.replica_rules import ReplicaId, ReplicaOrder, Want
from turnout.fleet.worker_rules import StoredHeartbeat
from turnout.tasks.task_rules import GangId
from turnout.tenants.gpu_account_rules import GpuAccounts
from turnout.tenants.gpu_time_rules import BookedReport, GpuBooking, GpuReport, cells_of

W1, W2 = WorkerId("w1"), WorkerId("w2")
DAY = "2026-11-15"
GANG = GangId("g")


def beat(epoch: str, counts: Mapping[str, int]) -> StoredHeartbeat:
    gpus = (Gpu(0, 80, 80, "X"), Gpu(1, 80, 80, "X"))
    return StoredHeartbeat(Machine(gpus, 0, 0), gpu_time=GpuReport(epoch, counts))


def order(model: str, *gpus: int) -> ReplicaOrder:
    return ReplicaOrder(
        ReplicaId(f"r-{model}"), Model(model, EngineKind.LLAMACPP, "w"), gpus or (0, 1), Want.READY
    )


def heard(*workers: WorkerId) -> GpuAccounts:
    """Both GPUs of each are `m`'s from second 0 on, when nothing was counted yet."""
    accounts = GpuAccounts()
    accounts.hear({worker: beat("e", {}) for worker in workers}, 0.0)
    for worker in workers:
        accounts.order(worker, [order("m")], 0.0)
    return accounts


def booked(due: GpuBooking | None) -> dict[str, int]:
    """ms by `state:kind:model`."""
    return {} if due is None else {cell.name: ms for cell, ms in due.by_model.items()}


def by_worker(due: GpuBooking | None) -> dict[str, int]:
    """ms by `state:kind:worker`."""
    found: Counter[str] = Counter()
    for (worker, cell), ms in due.booked.items() if due else ():
        found[cell._replace(holder=worker).name] += ms
    return dict(found)


def test_what_workers_counted_is_booked_by_model_and_by_worker() -> None:
    accounts = heard(W1, W2)
    accounts.hear({W1: beat("e", {"busy:X:m": 70, "free:X:": 30}), W2: beat("e", {"busy:X:m": 10})}, 1.0)
    due = accounts.due(DAY)
    assert due is not None
    assert booked(due) == {"busy:X:m": 80, "free:X:": 30}
    assert by_worker(due) == {"busy:X:w1": 70, "free:X:w1": 30, "busy:X:w2": 10}
    assert due.reports.keys() == {W1, W2}
    assert accounts.due(DAY) is None
    accounts.hear({W1: beat("e", {"busy:X:m": 70, "free:X:": 30})}, 2.0)
    assert accounts.due(DAY) is None, "the same report again"


def test_a_worker_that_was_never_seen_begins_with_what_it_reports() -> None:
    accounts = GpuAccounts()
    accounts.hear({W1: beat("e", {"busy:X:m": 86_400_000})}, 0.0)
    due = accounts.due(DAY)
    assert due is not None and not due.booked and due.reports.keys() == {W1}
    accounts.order(W1, [order("m")], 0.0)
    accounts.hear({W1: beat("e", {"busy:X:m": 86_400_500})}, 1.0)
    assert booked(accounts.due(DAY)) == {"busy:X:m": 500}


def test_a_worker_that_is_no_more_is_forgotten() -> None:
    accounts = heard(W1, W2)
    accounts.forget_all_but({W2})
    due = accounts.due(DAY)
    assert due is not None and due.reports[W1] is None and due.reports[W2] is not None


def test_a_worker_books_no_more_than_the_time_of_its_gpus_and_nothing_for_models_of_others() -> None:
    accounts = heard(W1)
    lies = {"busy:X:m": 4 * 10**12, "busy:X:another": 4 * 10**12, "free:X:": 4 * 10**12}
    accounts.hear({W1: beat("e", lies)}, 10.0)
    assert booked(accounts.due(DAY)) == {"busy:X:m": 20_000}, "ten seconds of two GPUs"
    accounts.hear({W1: beat("e", {name: 2 * ms for name, ms in lies.items()})}, 10.0)
    assert booked(accounts.due(DAY)) == {}, "no time has passed"
    accounts.hear({W1: beat("new", lies)}, 11.0)
    assert booked(accounts.due(DAY)) == {"busy:X:m": 2_000}, "nor does a new process begin with more"


def test_a_replica_that_left_the_orders_counts_for_the_time_it_was_there() -> None:
    accounts = heard(W1)
    accounts.order(W1, [], 4.0)
    accounts.hear({W1: beat("e", {"busy:X:m": 10_000})}, 5.0)
    assert booked(accounts.due(DAY)) == {"busy:X:m": 8_000, "free:X:": 2_000}
    accounts.hear({W1: beat("e", {"busy:X:m": 12_000})}, 6.0)
    assert booked(accounts.due(DAY)) == {"free:X:": 2_000}, "and not for longer"


def test_a_report_that_comes_late_loses_nothing_and_the_next_one_seems_too_long() -> None:
    accounts = heard(W1)
    accounts.hear({W1: beat("e", {"busy:X:m": 4_000})}, 7.0)  # counted at second 2
    accounts.hear({W1: beat("e", {"busy:X:m": 16_000})}, 8.0)  # counted at second 8
    assert booked(accounts.due(DAY)) == {"busy:X:m": 16_000}


def test_a_manager_that_takes_over_books_what_was_counted_while_none_was_there() -> None:
    accounts = heard(W1)
    due = accounts.due(DAY)
    assert due is not None
    saved = {worker: report for worker, report in due.reports.items() if report is not None}
    next_one = GpuAccounts()
    next_one.take_over(saved, {W1: [order("m")]}, 600.0)
    next_one.hear({W1: beat("e", {"busy:X:m": 4 * 10**12})}, 600.0)
    assert booked(next_one.due(DAY)) == {"busy:X:m": 1_200_000}, "ten minutes of two GPUs"


def test_a_manager_that_takes_over_goes_on_with_what_was_left_to_book() -> None:
    left = BookedReport("e", {}, 590.0, {"m": 5_000.0}, 5_000.0, 9_000.0)
    accounts = GpuAccounts()
    accounts.take_over({W1: left}, {W1: [order("m", 0)]}, 600.0)
    accounts.hear({W1: beat("e", {"busy:X:m": 10**9})}, 600.0)
    assert booked(accounts.due(DAY)) == {"busy:X:m": 15_000, "free:X:": 14_000}, "and ten seconds since"
    old = GpuAccounts()
    old.take_over({W1: BookedReport("e", {}, None, {}, 0.0, 0.0)}, {W1: [order("m", 0)]}, 600.0)
    old.hear({W1: beat("e", {"busy:X:m": 10**9})}, 600.0)
    assert booked(old.due(DAY)) == {}, "an older version did not say when"


def test_what_a_worker_makes_up_does_not_make_the_tables_grow() -> None:
    accounts = heard(W1)
    accounts.hear({W1: beat("e", {f"busy:kind {n}:model {n}": 1 for n in range(10_000)})}, 10.0)
    due = accounts.due(DAY)
    assert due is not None
    assert len(due.booked) <= 70 and {cell.holder for _, cell in due.booked} == {""}


def gang(at: float, *, since: float = 100.0, ready: bool = True) -> GangReport:
    ranks = (RankReport(0, "n1", "", 1, "NVIDIA H200"), RankReport(1, "n2", "", 2))  # one says what it is
    return GangReport(GANG, "clips", 0, since, at, 1, ranks, since if ready else None)


def video(device: str) -> dict[str, Model]:
    part = VideoPart(FAMILIES["wan-tiny-t2v"], ulysses=2, device=device)
    return {"clips": Model("clips", EngineKind.VIDEO, "w", video=part)}


def test_gangs_that_others_run_are_counted_from_report_to_report() -> None:
    accounts = GpuAccounts()
    models = video("cuda")
    accounts.see_gangs([gang(102, ready=False)], models, {})  # it is new: from its start
    accounts.see_gangs([gang(104)], models, {GANG: 1})
    accounts.see_gangs([gang(104)], models, {GANG: 1})  # it has said nothing more
    accounts.see_gangs([gang(107)], models, {})
    due = accounts.due(DAY)
    assert due is not None
    spent = (("loading", 2000), ("busy", 2000), ("idle", 3000))
    kinds = (("NVIDIA H200", "n1"), ("gpu", "n2"))
    assert due.by_model == cells_of({f"{state}:{kind}:clips": ms for state, ms in spent for kind, _ in kinds})
    assert by_worker(due) == {f"{state}:{kind}:{node}": ms for state, ms in spent for kind, node in kinds}


def test_ranks_on_cpus_are_one_device_a_machine_and_ranks_on_gpus_one_each() -> None:
    ranks = tuple(RankReport(n, node) for n, node in enumerate(("n1", "n1", "n2", "n2")))
    there = GangReport(GANG, "clips", 0, since=100.0, at=101.0, ranks=ranks, ready_at=100.5)

    def held(device: str) -> dict[str, int]:
        accounts = GpuAccounts()
        part = VideoPart(FAMILIES["wan-tiny-t2v"], ulysses=4, device=device)
        accounts.see_gangs([there], {"clips": Model("clips", EngineKind.VIDEO, "w", video=part)}, {GANG: 1})
        return by_worker(accounts.due(DAY))

    assert held("cpu") == {"busy:cpu:n1": 1000, "busy:cpu:n2": 1000}
    assert held("cuda") == {"busy:gpu:n1": 2000, "busy:gpu:n2": 2000}


def test_ranks_that_have_no_machine_yet_are_counted_all_the_same() -> None:
    accounts = GpuAccounts()
    coming = GangReport(GANG, "clips", 0, since=100.0, at=101.0, ranks=(RankReport(0, "n1"),))
    accounts.see_gangs([coming], video("cuda"), {})
    assert by_worker(accounts.due(DAY)) == {"loading:gpu:n1": 1000, "loading:gpu:(unplaced)": 1000}


def test_a_new_manager_does_not_count_an_old_gang_from_its_start() -> None:
    accounts = GpuAccounts()
    accounts.see_gangs([gang(5000)], video("cpu"), {})
    assert accounts.due(DAY) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([W1, W2]),
            st.sampled_from(["a", "b"]),
            st.integers(0, 5000),
            st.booleans(),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_all_that_was_counted_is_booked_once_whatever_is_killed(
    steps: list[tuple[WorkerId, str, int, bool, bool]],
) -> None:
    """Workers count as time passes, and die; managers die before they have written, and the next goes on from what was written."""
    orders = {worker: [order("a", 0), order("b", 1)] for worker in (W1, W2)}
    written = {worker: BookedReport("0", at=1.0) for worker in (W1, W2)}
    by_model: Counter[str] = Counter()
    counts, counted_at = {W1: Counter[str](), W2: Counter[str]()}, {W1: 1.0, W2: 1.0}
    epochs, counted, now = {W1: 0, W2: 0}, 0, 1.0

    def new_manager() -> GpuAccounts:
        made = GpuAccounts()
        made.take_over(written, orders, now)
        return made

    accounts = new_manager()
    for worker, model, ms, worker_dies, manager_dies in steps:
        now = max(now, counted_at[worker] + ms / 1000)
        counted_at[worker] = now
        counts[worker][f"busy:X:{model}"] += ms
        counted += ms
        report = beat(str(epochs[worker]), dict(counts[worker]))
        accounts.hear({worker: report}, now)
        if manager_dies:
            accounts = new_manager()
            accounts.hear({worker: report}, now)
        if (due := accounts.due(DAY)) is not None:
            by_model.update(booked(due))
            written |= {w: r for w, r in due.reports.items() if r is not None}
        if worker_dies:
            epochs[worker] += 1
            counts[worker].clear()
    assert sum(by_model.values()) == pytest.approx(counted, abs=len(steps))
    assert by_model.get("free:X:", 0) <= len(steps), "but for what was rounded"
