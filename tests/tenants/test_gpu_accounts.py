"""GPU time is booked by model and by worker with the same sum, once, and in tables that stay as small as the fleet."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.gang_rules import GangReport, RankReport
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.fleet.worker_rules import StoredHeartbeat
from turnout.tasks.task_rules import GangId
from turnout.tenants.gpu_account_rules import GpuAccounts
from turnout.tenants.gpu_time_rules import GpuCell, GpuReport, cells_of

W1, W2 = WorkerId("w1"), WorkerId("w2")
DAY = "2026-11-15"
GANG = GangId("g")


def beat(epoch: str, **counts: int) -> StoredHeartbeat:
    named = {name.replace("_", ":", 1).replace("_", ":", 1): ms for name, ms in counts.items()}
    return StoredHeartbeat(Machine((), 0, 0), gpu_time=GpuReport(epoch, named))


def knowing(*models: str) -> GpuAccounts:
    accounts = GpuAccounts({W1: GpuReport("e"), W2: GpuReport("e")})
    accounts.know_models(models)
    return accounts


def test_what_workers_counted_is_booked_by_model_and_by_worker() -> None:
    accounts = knowing("m")
    accounts.hear({W1: beat("e", busy_X_m=70, free_X_=30), W2: beat("e", busy_X_m=10)})
    due = accounts.due(DAY)
    assert due is not None
    assert due.by_model == cells_of({"busy:X:m": 80, "free:X:": 30})
    assert due.by_worker == cells_of({"busy:X:w1": 70, "free:X:w1": 30, "busy:X:w2": 10})
    assert due.reports.keys() == {W1, W2}
    assert accounts.due(DAY) is None
    accounts.hear({W1: beat("e", busy_X_m=70, free_X_=30)})
    assert accounts.due(DAY) is None, "the same report again"


def test_a_worker_that_was_never_seen_begins_with_what_it_reports() -> None:
    accounts = GpuAccounts({})
    accounts.know_models(["m"])
    accounts.hear({W1: beat("e", busy_X_m=86_400_000)})
    due = accounts.due(DAY)
    assert due is not None and not due.by_model and due.reports.keys() == {W1}
    accounts.hear({W1: beat("e", busy_X_m=86_400_500)})
    due = accounts.due(DAY)
    assert due is not None and due.by_model == cells_of({"busy:X:m": 500})


def test_a_worker_that_is_no_more_is_forgotten() -> None:
    accounts = knowing()
    accounts.forget_all_but({W2})
    due = accounts.due(DAY)
    assert due is not None and due.reports == {W1: None}


def test_what_a_worker_makes_up_does_not_make_the_tables_grow() -> None:
    accounts = knowing("m")
    lies = {f"busy:kind {n}:model {n}": 1 for n in range(10_000)}
    accounts.hear({W1: StoredHeartbeat(Machine((), 0, 0), gpu_time=GpuReport("e", lies))})
    due = accounts.due(DAY)
    assert due is not None
    assert len(due.by_model) <= 70 and sum(due.by_model.values()) == 10_000


def gang(at: float, *, since: float = 100.0, ready: bool = True) -> GangReport:
    ranks = (RankReport(0, "n1", "", 1, "NVIDIA H200"), RankReport(1, "n2", "", 2))  # one says what it is
    return GangReport(GANG, "clips", 0, since, at, 1, ranks, since if ready else None)


def video(device: str) -> dict[str, Model]:
    part = VideoPart(FAMILIES["wan-tiny-t2v"], ulysses=2, device=device)
    return {"clips": Model("clips", EngineKind.VIDEO, "w", video=part)}


def test_gangs_that_others_run_are_counted_from_report_to_report() -> None:
    accounts = knowing("clips")
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
    assert due.by_worker == cells_of(
        {f"{state}:{kind}:{node}": ms for state, ms in spent for kind, node in kinds}
    )


def test_ranks_on_cpus_are_one_device_a_machine_and_ranks_on_gpus_one_each() -> None:
    ranks = tuple(RankReport(n, node) for n, node in enumerate(("n1", "n1", "n2", "n2")))
    there = GangReport(GANG, "clips", 0, since=100.0, at=101.0, ranks=ranks, ready_at=100.5)

    def booked(device: str) -> dict[GpuCell, int]:
        accounts = knowing("clips")
        part = VideoPart(FAMILIES["wan-tiny-t2v"], ulysses=4, device=device)
        accounts.see_gangs([there], {"clips": Model("clips", EngineKind.VIDEO, "w", video=part)}, {GANG: 1})
        due = accounts.due(DAY)
        assert due is not None
        return dict(due.by_worker)

    assert booked("cpu") == cells_of({"busy:cpu:n1": 1000, "busy:cpu:n2": 1000})
    assert booked("cuda") == cells_of({"busy:gpu:n1": 2000, "busy:gpu:n2": 2000})


def test_a_new_manager_does_not_count_an_old_gang_from_its_start() -> None:
    accounts = knowing("clips")
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
def test_both_tables_and_the_workers_agree_whatever_is_killed(
    steps: list[tuple[WorkerId, str, int, bool, bool]],
) -> None:
    """Workers count, and die; managers die before they have written, and the next goes on from what was written."""
    written: dict[WorkerId, GpuReport] = {W1: GpuReport("0"), W2: GpuReport("0")}
    by_model, by_worker = Counter[GpuCell](), Counter[GpuCell]()
    counts = {W1: Counter[str](), W2: Counter[str]()}
    epochs, counted = {W1: 0, W2: 0}, 0
    accounts = GpuAccounts(dict(written))
    accounts.know_models("ab")
    for worker, model, ms, worker_dies, manager_dies in steps:
        counts[worker][f"busy:X:{model}"] += ms
        counted += ms
        report = GpuReport(str(epochs[worker]), dict(counts[worker]))
        accounts.hear({worker: StoredHeartbeat(Machine((), 0, 0), gpu_time=report)})
        if manager_dies:
            accounts = GpuAccounts(dict(written))
            accounts.know_models("ab")
            accounts.hear({worker: StoredHeartbeat(Machine((), 0, 0), gpu_time=report)})
        if (due := accounts.due(DAY)) is not None:
            by_model.update(due.by_model)
            by_worker.update(due.by_worker)
            written |= {w: r for w, r in due.reports.items() if r is not None}
        if worker_dies:
            epochs[worker] += 1
            counts[worker].clear()
    assert sum(by_model.values()) == sum(by_worker.values()) == counted
