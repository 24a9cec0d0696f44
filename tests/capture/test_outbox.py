"""Events of an outbox, and transaction markers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture import Capture, CaptureStore, Changes, Table
from headwater.capture.transactions import TransactionCounts
from tests.capture.shop import config_of, log_at, shop_at


def test_insertions_into_an_outbox_are_events_by_aggregate_type(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT, tenant TEXT)"
    )
    insert = "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, 'north')"
    shop.execute(insert, ("e1", "order", "7", "placed", "{}"))
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, outbox="outbox"))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute(insert, ("e2", "order", "7", "paid", '{"by": "card"}'))
            shop.execute(insert, ("e3", "customer", "ada", "moved", "{}"))
            shop.execute("DELETE FROM outbox WHERE id = 'e1'")
            shop.execute("UPDATE outbox SET payload = 'x' WHERE id = 'e2'")
            shop.execute(insert, ("e4", "../order", "8", "placed", "{}"))
            shop.execute(insert, ("e5", None, "8", "placed", "{}"))
            capture.catch_up()
        orders = log.read("shop.events.order").rows()
        assert [(row["aggregateid"], row["type"], row["_headers"]) for row in orders] == [
            ("7", "placed", {"id": b"e1"}), ("7", "paid", {"id": b"e2"}),
        ]  # fmt: skip
        assert orders[1]["payload"] == '{"by": "card"}'
        assert orders[1]["tenant"] == "north"
        topic = log.topic("shop.events.order")
        assert (topic.key, topic.compact) == (("aggregateid",), False)
        assert log.read("shop.events.customer").count() == 1
        assert "shop.outbox" not in log.topics()
        reasons = [row["message"] for row in log.read("shop.outbox.dlq").rows()]
    assert len(reasons) == 3
    assert "only insertions are events" in reasons[0]
    assert "null" in reasons[2]


@given(
    written=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["orders", "stock"])), max_size=20),
    size=st.integers(1, 6),
)
def test_markers_count_what_a_transaction_changed(written: list[tuple[int, str]], size: int) -> None:
    written = sorted(written, key=lambda one: one[0])
    tables = {
        name: Table(name=name, columns=pa.schema([("id", pa.int64())]), key=("id",)) for name in ("orders", "stock")
    }
    piece = []
    for at in range(0, len(written), size):
        for name, table in tables.items():
            places = [place for place in range(at, min(at + size, len(written))) if written[place][1] == name]
            numbers = pa.array(places, pa.int64())
            piece.append(
                Changes(
                    table=table,
                    operations=pa.array(["c"] * len(places), pa.string()),
                    rows=pa.RecordBatch.from_arrays([numbers], schema=table.columns),
                    at_us=numbers,
                    order=numbers,
                    transaction=pa.array([str(written[place][0]) for place in places], pa.string()),
                )
            )
    counts = TransactionCounts()
    for changes in piece:
        counts.first(changes)
    facts = [fact for changes in piece for fact in counts.facts(changes).to_pylist()]
    markers = counts.markers()
    totals = Counter(str(number) for number, _ in written)
    assert [row["id"] for row in markers if row["status"] == "BEGIN"] == list(totals)
    for row in markers:
        if row["status"] == "END":
            assert row["event_count"] == totals[row["id"]]
            of_tables = Counter(name for number, name in written if str(number) == row["id"])
            assert {one["data_collection"]: one["event_count"] for one in row["data_collections"]} == of_tables
            places = sorted(fact["total_order"] for fact in facts if fact["id"] == row["id"])
            assert places == list(range(1, row["event_count"] + 1))
