"""One drawing of all apps: what is shared, what is hidden, what lies around a node, and the numbers on its lines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.apps.status import QueryStatus
from headwater.console.history import TopicStatus, series_names
from headwater.console.queries.status import watermark_reason
from headwater.console.topology.flow import Flow, Station, around, flow_of, rates_of
from headwater.log.port import Lag
from tests.console.stage import graph_of

SHOP = graph_of({"spend": (["payments", "cards"], ["spend", "spend.late"])}, app="shop")
BANK = graph_of({"watch": (["spend"], ["watch", "sink:mail:boss"]), "spend": (["cards"], ["spend_copy"])}, app="bank")


def lag(group: str, topic: str) -> Lag:
    return Lag(group=group, topic=topic, partition=0, committed=1, offset_start=0, offset_next=4, rows=3, seconds=0.0)


def topic(name: str, rate: float) -> TopicStatus:
    return TopicStatus(name=name, partitions=1, rows=0, bytes=0, appended_at_us=None, rate=rate)


def test_apps_meet_in_the_topics_that_they_share_and_their_queries_stay_apart() -> None:
    flow = flow_of([SHOP, BANK], [])
    assert flow.stations["topic:spend"].kind == "view"
    assert {"query:shop/spend", "query:bank/spend", "query:bank/watch"} < set(flow.stations)
    assert flow.before("query:bank/watch") == ["topic:spend"]
    assert set(flow.after("topic:cards")) == {"query:shop/spend", "query:bank/spend"}
    assert flow.stations["sink:bank/watch → mail:boss"].title == "mail:boss"
    assert Station(id="s", kind="sink", name="archive → lake:/srv/lakes/alerts").title == "lake:alerts"
    assert ("query:shop/spend", "topic:spend.late") in flow.side_outputs
    assert ("query:shop/spend", "topic:spend") not in flow.side_outputs


def test_what_one_may_not_see_is_not_drawn() -> None:
    flow = flow_of([SHOP], [], sees=lambda name: name != "cards")
    assert "topic:cards" not in flow.stations
    assert all("topic:cards" not in edge for edge in flow.edges)
    assert "query:shop/spend" in flow.stations
    assert set(flow_of([SHOP, BANK], [], sees=lambda name: name == "payments").stations) == {
        "topic:payments",
        "query:shop/spend",
    }


def test_groups_and_dead_letters_are_part_of_it_and_lone_topics_only_where_there_is_nothing_else() -> None:
    status = QueryStatus(name="watch", kind="view", app="bank", inputs=("spend",), rejected=2)
    flow = flow_of([BANK], [status], lags=[lag("billing", "spend")], topics=["spend.dlq", "lonely", "__audit"])
    assert ("query:bank/watch", "topic:spend.dlq") in flow.side_outputs
    assert flow.before("group:billing") == ["topic:spend"]
    assert "topic:lonely" not in flow.stations
    assert set(flow_of([], [], topics=["lonely", "__audit"]).stations) == {"topic:lonely"}


ids = st.integers(0, 14).map(str)


@given(edges=st.lists(st.tuples(ids, ids), max_size=30), hops=st.integers(0, 4), centre=ids)
def test_around_a_node_is_what_can_be_reached_in_so_many_steps(
    edges: list[tuple[str, str]], hops: int, centre: str
) -> None:
    names = {centre, *(name for edge in edges for name in edge)}
    flow = Flow(stations={name: Station(id=name, kind="topic", name=name) for name in names}, edges=tuple(edges))
    distance = dict.fromkeys(names, math.inf)
    distance[centre] = 0
    for _ in names:  # Bellman and Ford: slow, and plainly right
        for first, second in edges:
            distance[first] = min(distance[first], distance[second] + 1)
            distance[second] = min(distance[second], distance[first] + 1)
    assert set(around(flow, centre, hops=hops).stations) == {name for name in names if distance[name] <= hops}


@given(rates=st.lists(st.floats(0, 1e6), min_size=2, max_size=2), read=st.floats(0, 1e6))
def test_what_a_query_reads_is_shared_among_its_inputs(rates: list[float], read: float) -> None:
    flow = flow_of([SHOP], [])
    status = QueryStatus(name="spend", kind="view", app="shop", rows_per_second=read)
    topics = {name: topic(name, rate) for name, rate in zip(("payments", "cards"), rates, strict=True)}
    by_edge = rates_of(flow, {"query:shop/spend": status}, topics)
    shares = [by_edge[f"topic:{name}", "query:shop/spend"] for name in ("payments", "cards")]
    assert sum(shares) == pytest.approx(read)
    assert all(share >= 0 for share in shares)


def test_a_watermark_has_its_reason_in_words() -> None:
    base = {"name": "spend", "kind": "view", "batch": 3, "watermark_us": 5, "rows_per_second": 9.0}
    told = [
        watermark_reason(QueryStatus(**{**base, **more}))  # type: ignore[arg-type]  # a test's own
        for more in (
            {"batch": None},
            {"watermark_us": None},
            {"lag_rows": 1_200},
            {"rows_per_second": 0.0},
            {"watermark_held_by": "partition 2 of clicks, idle for 40 s, holds the watermark"},
            {},
        )
    ]
    assert [text.split(":")[0].split(",")[0] for text in told] == [
        "No batch yet",
        "No watermark",
        "The query is 1",
        "No rows come. The watermark goes on with the next rows",
        "Partition 2 of clicks",
        "It follows the latest event time of the slowest partition",
    ]


def test_series_of_queries_have_names_of_their_own() -> None:
    queries = [("shop", "spend", 1), ("shop", "spend", 2), ("bank", "spend", 1), ("bank", "spend", 2), ("bank", "a", 1)]
    statuses = [QueryStatus(name=name, kind="view", app=app, version=version) for app, name, version in queries]
    assert series_names(statuses) == ["spend", "spend v2", "bank/spend", "bank/spend v2", "a"]
