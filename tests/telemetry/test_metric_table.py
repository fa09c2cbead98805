"""Every metric is declared in the table, named by Prometheus's conventions, told in docs/metrics.md, and has bounded labels."""

import re
import time
from pathlib import Path

import pytest
from docs.metric_pages import CHINESE, ENGLISH, written
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import Stores, wait_until
from tests.gateways import Gateway, running

from turnout.chat.chat_metrics import ChatMetrics
from turnout.fleet.machine_rules import Gpu, Machine, NodeLoad, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Version
from turnout.fleet.publication import FleetFigures, Publication
from turnout.fleet.replica_rules import EngineFigures, Phase, ReplicaId, ReplicaReport
from turnout.fleet.route_rules import Demand
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause
from turnout.fleet.worker_rules import Enrolment, StoredHeartbeat
from turnout.tasks.task_rules import Interrupted, Stage
from turnout.telemetry.exposition import MAX_ROWS, Metric, NumberMetric
from turnout.telemetry.fleet_metrics import FleetView, fleet_texts
from turnout.telemetry.metric_table import METRICS
from turnout.tenants.gpu_time_rules import GpuReport

UNITS = ("seconds", "bytes", "ratio")
BOUNDED = {
    "cause",
    "code",
    "counted",
    "kind",
    "level",
    "loop",
    "method",
    "model",
    "name",
    "of",
    "outcome",
    "replica",
    "route",
    "side",
    "stage",
    "standing",
    "start",
    "state",
    "status",
    "version",
    "version_of",
    "worker",
    "gpu",
}
GPU = Gpu(0, 80, 60, "NVIDIA X", 0.5, 300.0, 60.0, 1, 2)
COUNTS = {
    "start:request:m": 1,
    "ready_start:2:m": 1,
    "ready_start:ms:m": 3000,
    "ratio_start:4:m": 1,
    "ratio_start:ms:m": 1000,
    "evict::m": 1,
    "fail::m": 1,
    "webhook:again": 2,
    "gpu_busy:NVIDIA X:m": 1500,
}


def chat_text() -> str:
    chat = ChatMetrics(lambda: {"m": Demand(1, 1)})
    figures = chat.of("m")
    figures.finished("200", 1.0, 1, 1)
    chat.refused("busy")
    return chat.text()


async def populate(gateway: Gateway) -> None:
    stores, worker = gateway.stores, WorkerId("w-1")
    figures = EngineFigures(0.5, 100, 40, 3, 2)
    report = ReplicaReport(ReplicaId("r1"), Phase.READY, None, 1, "", "m", (0,), figures=figures)
    counted = GpuReport("e", {"busy:NVIDIA X:m": 1500, "free:NVIDIA X:": 500})
    await stores.fleet.workers.enrol(Enrolment(worker, "one", "http://192.0.2.9:1", "d" * 64))
    await stores.fleet.workers.heard(
        worker, StoredHeartbeat(Machine((GPU,), 10, 5, load=NodeLoad(1, 2, 3)), (report,), gpu_time=counted)
    )
    await stores.fleet.models.put(Model("next", EngineKind.VLLM, "w", version=Version("m", 0.5)))
    await stores.data.report_loops({"fleet": "ok"})
    await stores.mutex.hold("fleet", "m1", 60)
    statuses = {"m": ModelStatus(ModelState.WAITING, StatusCause.NO_WORKER)}
    told = Publication(statuses=statuses, replica_counts={"ready:m": 1}, decision_counts=COUNTS)
    assert await stores.fleet.manager_state.publish("fleet", "m1", told)
    await gateway.submit()
    task = await gateway.gang.claim()
    await gateway.gang.say(task, Interrupted(time.time(), task.attempt, "rank 1 died"))
    task = await gateway.gang.claim()
    for step in range(3):
        await gateway.gang.progress(task, Stage.DENOISING, step)
    await gateway.gang.finish(task)
    service = gateway.inside.telemetry.metrics._service
    service.disks, service.certificate_expiry = lambda: {"state": (2, 1)}, lambda: 1.0


@pytest.fixture
async def scrape(stores: Stores, tmp_path: Path) -> str:
    """What /metrics says when every metric has at least one line."""
    async with running(stores, tmp_path) as gateway:
        text = ""

        async def complete() -> bool:
            nonlocal text
            await populate(gateway)
            text = (await gateway.http.get("/metrics")).text
            return "turnout_video_estimate_ratio_count" in text and "turnout_gang_restarts_total{" in text

        await wait_until(complete, "the events to be counted")
    empty, full = ChatMetrics(dict).text(), chat_text()
    assert empty in text, "the gateway tells of chat"
    return text.replace(empty, full)


def test_a_scrape_tells_every_declared_metric_with_its_labels(scrape: str) -> None:
    told: dict[str, tuple[str, str, set[str]]] = {}
    for family in text_string_to_metric_families(scrape):
        if family.name.startswith("turnout_"):
            assert family.samples, f"{family.name} has no line: give it one in this test"
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            told[name] = (family.type, family.documentation, labels)
    assert told == {metric.name: (metric.kind, metric.help, set(metric.labels)) for metric in METRICS}


@pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_the_pages_have_the_table_of_the_code(page: Path) -> None:
    assert page.read_text() == written(page), f"./dev metrics writes {page.name} anew"


def test_each_metric_is_told_in_chinese() -> None:
    rows = [line for line in CHINESE.read_text().splitlines() if line.startswith("| `turnout_")]
    assert [row for row in rows if not re.search("[\u4e00-\u9fff]", row)] == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_labels_and_help_follow_the_conventions(metric: Metric) -> None:
    assert metric.name.startswith("turnout_")
    assert metric.kind != "histogram" or metric.name.endswith(UNITS)
    assert not re.search(r"_(ms|millis|kb|mb|gb|percent|minutes)(_|$)", metric.name)
    assert set(metric.labels) <= BOUNDED, "which values may a label of it have, and who bounds them?"
    assert re.fullmatch(r"[A-Z1][^\n]+ [^\n]+\.", metric.help), "a sentence that means something alone"


def test_ids_of_tasks_and_names_of_tenants_are_in_no_line(scrape: str) -> None:
    assert "video_0" not in scrape
    assert "acme" not in scrape


def test_the_lines_of_one_metric_are_bounded() -> None:
    many = NumberMetric("g", "x", ("n",)).by_label((str(n), n) for n in range(10 * MAX_ROWS))
    assert many.count("\n") == MAX_ROWS + 2
    counts = {f"start:request:m{n}": 1 for n in range(3 * MAX_ROWS)}
    counts |= {f"ready_start:1:m{n}": 1 for n in range(3 * MAX_ROWS)}
    lines = "".join(fleet_texts(FleetView(FleetFigures(decision_counts=counts)))).splitlines()
    by_name: dict[str, int] = {}
    for line in lines:
        if not line.startswith("#"):
            name = line.partition("{")[0]
            by_name[name] = by_name.get(name, 0) + 1
    assert max(by_name.values()) <= MAX_ROWS


def test_what_workers_call_themselves_cannot_break_the_text() -> None:
    name = 'a"\\b\n} 1'
    text = NumberMetric("g", "x", ("n",)).by_label([(name, 1.0)])
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"n": name}
