"""`AppTest` for users: it needs no session and no clock of theirs, and leaves their app as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import ArgumentInvalid, ColumnMisfit, NotFound
from headwater.sinks import ConsoleSink, RedisSink
from headwater.testing import AppTest
from headwater.testing.recorded_sink import RecordedSink

FILE = """
import headwater as hw

app = hw.App("shop", log="./data")
app.input("orders", {"id": "int64"}, key="id")


@app.topic(key="id")
def large(orders):
    return orders.where("id > 1")
"""
ALONE = """
import os
from headwater.testing import AppTest

with AppTest("shop.py") as test:
    test.feed("orders", [{"id": number} for number in range(4)])
    assert [row["id"] for row in test.rows("large")] == [2, 3]
    test.feed("orders", [{"id": 7}])
    assert [row["id"] for row in test.rows("large")] == [2, 3, 7]
print(sorted(os.listdir(".")))
"""


@pytest.mark.process
def test_it_starts_a_session_by_itself_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-B", "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["['shop.py']"]


def test_an_app_has_its_own_log_and_home_again_afterwards(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", {"id": "int64"}, key="id")
    before = (app.log, app.home)
    with AppTest(app) as test:
        test.feed("orders", [{"id": 1}])
        assert test.log.read("orders").count() == 1
        assert (app.log, app.home) != before
    assert (app.log, app.home) == before
    assert not (tmp_path / "data").exists()


def test_time_moves_only_when_told(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", {"id": "int64"}, key="id")
    start = datetime(2026, 5, 4, tzinfo=UTC)
    with AppTest(app, start=start) as test:
        assert test.now == start
        with pytest.raises(ArgumentInvalid):
            test.advance("soon")
        test.advance("90 minutes")
        assert (test.now - start).total_seconds() == 5_400
        test.feed("orders", [{"id": 1}])
        assert [row["_appended_at"] for row in test.log.read("orders").rows()] == [test.now]


BANK = """
import headwater as hw
from headwater.operators import Tumbling, agg
from headwater.sinks import ParquetSink, WebhookSink

app = hw.App("bank", log="./data", views="postgresql://127.0.0.1:1/nowhere")
app.input(
    "payments", {"card": "int64", "amount": "float64", "at": "timestamp"}, key="card", time="at", partitions=1
)


@app.sink(WebhookSink(url="http://127.0.0.1:1/block"), ParquetSink(path="./large"), trigger="1 hour")
def large(payments):
    return payments.where("amount > 500").select("card", "amount")


@app.view(key=("card", "window_start"))
def spend(payments):
    return payments.transform(Tumbling(size="1 minute", by="card", compute={"total": agg.sum("amount")}))
"""


@pytest.mark.spark
def test_nothing_leaves_a_test_and_a_missing_row_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bank.py").write_text(BANK)
    with AppTest("bank.py", spark=spark) as test:
        assert (test.rows("spend"), test.late(), test.dropped(), test.dead_letters()) == ([], [], {}, [])
        minute = timedelta(minutes=1)
        test.feed("payments", [{"card": 7, "amount": 900.0, "at": test.now + 5 * minute}])
        assert test.sent("webhook:http://127.0.0.1:1/block") == [{"card": 7, "amount": 900.0}]
        assert test.sent("parquet") == [{"card": 7, "amount": 900.0}]
        with pytest.raises(ArgumentInvalid, match="there are several"):
            test.sent("large")
        with pytest.raises(NotFound, match="Did you mean 'webhook"):
            test.sent("webhok")
        test.feed("payments", [{"card": 8, "amount": 1.0, "at": test.now}, {"card": 9, "amount": 2.0, "at": None}])
        assert [row["card"] for row in test.late("spend")] == [8]
        assert test.dropped() == {"spend": {"late": 1, "rejected": 1}}
        assert [json.loads(letter["row"])["card"] for letter in test.dead_letters("payments")] == [9]
        assert test.dead_letters("orders") == []
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["bank.py"]


def test_sinks_are_recorded_or_real(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", {"id": "int64"}, key="id")
    app.sink(ConsoleSink(), name="printed", trigger="1 hour")(lambda orders: orders)
    before = list(app.queries)
    with pytest.raises(ArgumentInvalid, match="'recorded' or 'real'"):
        AppTest(app, sinks="none")  # type: ignore[arg-type]
    with AppTest(app):
        assert app.queries[0].trigger is None
        assert isinstance(app.queries[0].sinks[0], RecordedSink)
        assert app.queries[0].sinks[0].name == "console"
    with AppTest(app, sinks="real"):
        assert app.queries[0].sinks == before[0].sinks
    assert app.queries == before


def test_a_recorded_sink_refuses_rows_without_its_key() -> None:
    recorded = RecordedSink(sink=RedisSink(url="redis://127.0.0.1:1", prefix="spend", key="card"))
    recorded.check(pa.schema([("card", "int64")]))
    with pytest.raises(ColumnMisfit):
        recorded.check(pa.schema([("cart", "int64")]))
