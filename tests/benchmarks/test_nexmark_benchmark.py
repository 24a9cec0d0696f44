"""The benchmark of Nexmark: its data are the same in each form, its check finds a wrong row, and a query runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import headwater.log as hwlog
from benchmarks.nexmark import check, flink_queries
from benchmarks.nexmark.__main__ import PARTS
from benchmarks.nexmark.answers import ANSWERS
from benchmarks.nexmark.data import USES, fill
from headwater.testing import Nexmark
from headwater.testing.nexmark import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
EVENTS = Nexmark(seed=1, between="5 ms")


def test_each_query_has_an_answer_and_knows_its_columns() -> None:
    assert list(PARTS) == list(ANSWERS) == list(USES) == list(flink_queries.QUERIES)
    for uses in USES.values():
        assert all(set(columns) <= set(SCHEMAS[topic]) for topic, columns in uses.items())


def test_topics_and_files_have_the_same_events(tmp_path: Path) -> None:
    data = fill(tmp_path, EVENTS, events=800, batches=2)
    with hwlog.open(data.log) as log, duckdb.connect() as duck:
        for topic, wanted in EVENTS.events(first=0, count=800)._asdict().items():
            ids = sorted(wanted.column(0).to_pylist())
            assert sorted(log.read(topic, columns=[wanted.column_names[0]]).table().column(0).to_pylist()) == ids
            files = f"SELECT {wanted.column_names[0]} FROM '{data.parquet}/{topic}/*.parquet' ORDER BY ALL"
            assert [row[0] for row in duck.sql(files).fetchall()] == ids
            csv = data.csv(topic, (wanted.column_names[0],), events=800)
            assert sorted(int(line) for path in csv.iterdir() for line in path.read_text().splitlines()) == ids
            assert data.batch_rows(topic) * data.batches == wanted.num_rows


def test_a_later_event_closes_the_windows_of_spark_and_meets_no_other(tmp_path: Path) -> None:
    data = fill(tmp_path, EVENTS, events=400, batches=1)
    with duckdb.connect() as duck:
        files = f"""SELECT auction, bidder FROM '{data.closed_parquet()}/bid/*.parquet' ORDER BY "at" DESC LIMIT 1"""
        assert duck.sql(files).fetchall() == [(-3, -3)]


def test_changes_come_to_rows(tmp_path: Path) -> None:
    changes = [("+I", {"a": 1}), ("-U", {"a": 1}), ("+U", {"a": 2}), ("+I", {"a": 2})]
    path = tmp_path / "changes"
    path.write_text("".join(json.dumps(change) + "\n" for change in changes))
    assert check.given(path, ()) == [{"a": 2}, {"a": 2}]
    path.write_text('["update", {"a": 1, "n": 1}]\n["update", {"a": 1, "n": 2}]\n')
    assert check.given(path, ("a",)) == [{"a": 1, "n": 2}]


def test_a_wrong_row_is_found() -> None:
    with pytest.raises(check.AnswerWrong, match=r"1 rows of 1 are not in DuckDB, 1 are missing"):
        check.check("q2", [{"auction": 1, "price": 2}], [{"auction": 1, "price": 3}])
    with pytest.raises(check.AnswerWrong, match="0 rows"):
        check.check("q2", [], [{"auction": 1, "price": 3}])


@pytest.mark.long
@pytest.mark.process
def test_a_query_runs_on_both_and_its_last_line_is_json(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.nexmark", "--quick", "--only", "q7", "--engines", "Headwater,Spark"]
    done = subprocess.run([*words, "--dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout.splitlines()[-1])["results"]
    assert result["name"] == "q7"
    assert result["value"] > 0
    assert result["peer_value"] > 0
    assert result["peer_memory_mib"] > 100
