"""Each metric and label of the dashboard is one that the server exports, and each metric has a panel."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.alerts import Rule
from headwater.apps.metrics import STATES
from headwater.services import Audit, Settings
from headwater.services.captures import CapturedTable, Captures, CaptureStatus
from headwater.services.gateways import Gateways, GatewayStatus
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from headwater.services.queries import Queries, QueryList
from tests.apps.test_metrics import FULL
from tests.deploy.product import DEPLOY

BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "headwater.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
#: Words of PromQL in front of a list of labels.
GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
METRIC = re.compile(r"\b(headwater_\w+)\s*(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|=|!=)\s*"([^"]*)"')


def targets() -> Iterator[tuple[str, str, str]]:
    """Expression and legend of each query, with the title of its panel."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric of a log that has one of everything, as the server tells them to Prometheus."""
    capture = CaptureStatus(
        name="shop",
        url="sqlite:///shop.db",
        state="streaming",
        envelope="flat",
        pending=1,
        delay_seconds=1.0,
        retained_bytes=1,
        tables=[CapturedTable(table="orders", topic="shop.orders", snapshot_rows=1, snapshot_rows_expected=2)],
    )
    gateway = GatewayStatus(
        name="load", kind="statsd", direction="in", topic="metrics", address="127.0.0.1:8125", state="running"
    )
    with headwater.open(tmp_path_factory.mktemp("metrics") / "log") as log, pytest.MonkeyPatch.context() as patch:
        log.create("orders", {"id": "int64"})
        log.append("orders", [{"id": 1}, {"id": 2}])
        log.commit_offsets("billing", "orders", {0: 1})
        with log.queue("jobs") as queue:
            queue.put({"n": 1})
        audit = Audit(log)
        audit.unrecorded[401] += 1
        host = Host(log=log, settings=Settings(), audit=audit)
        host.watcher.store.put(Rule(name="slow", kind="lag", group="billing", threshold=5))
        # What only another process could report.
        patch.setattr(Captures, "list_captures", lambda _: [capture])
        patch.setattr(Gateways, "list_gateways", lambda _: [gateway])
        patch.setattr(Queries, "statuses", lambda _: QueryList(queries=[FULL]))
        text = Metrics(host).scrape()
        host.close()
    labels: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels[sample.name] |= sample.labels.keys()
    return labels


def test_every_metric_and_label_of_an_expression_is_exported(exported: dict[str, set[str]]) -> None:
    for title, expression, legend in targets():
        found = METRIC.findall(expression)
        assert found, title
        for name, matchers in found:
            assert name in exported, f"{title}: {name}"
            for label, _, value in MATCHER.findall(matchers):
                assert label in exported[name], f"{title}: {name} has no label {label}"
                if label == "state":
                    assert set(value.split("|")) <= set(STATES)
        labels = [exported[name] for name, _ in found]
        common = set.intersection(*labels)
        grouped = {label.strip() for names in GROUPED.findall(expression) for label in names.split(",")}
        assert grouped <= common, title
        shown = set(re.findall(r"{{(\w+)}}", legend))
        assert shown <= (grouped if grouped else common), f"{title}: {legend}"


def test_every_exported_metric_has_a_panel(exported: dict[str, set[str]]) -> None:
    drawn = {name for _, expression, _ in targets() for name, _ in METRIC.findall(expression)}
    assert exported.keys() - drawn == set()


def test_variables_are_used_and_name_exported_labels(exported: dict[str, set[str]]) -> None:
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    used = {name for _, expression, _ in targets() for name in re.findall(r"\$(\w+)", expression)}
    assert used - {"__rate_interval", "__range"} == variables.keys() - {"datasource"}
    for name, each in variables.items():
        if each["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"]["query"])
            assert asked is not None
            assert asked[2] in exported[asked[1]]
            assert asked[2] == name


def test_panels_do_not_overlap_and_ask_the_chosen_data_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    for panel in PANELS:
        assert panel["description"].endswith(".")
        assert {panel["datasource"]["uid"], *(each["datasource"]["uid"] for each in panel["targets"])} == {
            "${datasource}"
        }
