"""What we say to Prometheus, its own parser reads back unchanged."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.apps.metrics import STATES, Metric, metrics
from headwater.apps.status import QueryStatus

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
FULL = QueryStatus(
    name="spend",
    kind="view",
    state="running",
    batch=4,
    batch_ms=120.0,
    phases_ms={"addBatch": 100.0},
    lag_rows=12,
    lag_seconds=0.5,
    watermark_us=1_700_000_000_500_000,
)


def parsed(text: str) -> dict[str, list[tuple[str, dict[str, str], float]]]:
    return {
        family.name: [(sample.name, sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


@given(
    help=st.text(),
    labels=st.dictionaries(st.from_regex(r"[a-z]+", fullmatch=True), st.text(), max_size=3),
    value=st.floats(),
)
def test_any_label_and_value_comes_back(help: str, labels: dict[str, str], value: float) -> None:
    metric = Metric(name="m", help=help)
    metric.add(value, **labels)
    [(name, found, number)] = parsed(metric.text() + "\n")["m"]
    assert (name, found) == ("m", labels)
    assert number == value or (number != number and value != value)


def documented() -> set[str]:
    """The names and kinds that the page lists."""
    found = re.findall(r"^\| `(headwater_\w+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {" ".join(pair) for pair in found}


def test_every_name_is_documented_and_every_documented_name_is_told(tmp_path: Path) -> None:
    with headwater.open(tmp_path) as log:
        log.create("orders", {"id": "int64"})
        log.append("orders", [{"id": 1}, {"id": 2}])
        log.commit_offsets("billing", "orders", {0: 1})
        text = metrics([FULL], log)
    told = set(re.findall(r"^# TYPE (\S+ \S+)$", text, flags=re.MULTILINE))
    of_the_server = ("headwater_capture_", "headwater_gateway_", "headwater_queue_")
    assert told == {pair for pair in documented() if not pair.startswith(of_the_server)}


def test_the_log_and_its_groups_are_told_by_partition(tmp_path: Path) -> None:
    with headwater.open(tmp_path) as log:
        log.create("orders", {"id": "int64"}, partitions=2)
        log.append("orders", [{"id": 1}, {"id": 2}], partition=1)
        log.commit_offsets("billing", "orders", {1: 1})
        found = parsed(metrics([], log))
    ends = {labels["partition"]: value for _, labels, value in found["headwater_topic_end_offset"]}
    lags = {labels["partition"]: value for _, labels, value in found["headwater_group_lag_rows"]}
    assert (ends, lags) == ({"0": 0, "1": 2}, {"0": 0, "1": 1})


def test_a_query_is_in_one_state_and_what_is_unknown_is_left_out() -> None:
    found = parsed(metrics([QueryStatus(name='a "b"\\\n', kind="view", state="failed")]))
    states = {labels["state"]: value for _, labels, value in found["headwater_query_state"]}
    assert states == {name: float(name == "failed") for name in STATES}
    assert {labels["query"] for _, labels, _ in found["headwater_query_state"]} == {'a "b"\\\n'}
    assert "headwater_query_lag_rows" not in found
    assert metrics([]) == "\n"
