"""The benchmark beside peers: both sides have the same events, DuckDB's answers fit themselves, and a wrong row is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import headwater.log as hwlog
from benchmarks.peers import workloads
from benchmarks.peers.answers import ANSWERS, TOPICS, AnswerWrong, check
from benchmarks.peers.data import BID, OFFER, VIEW, Data, fill, written

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    made = fill(tmp_path_factory.mktemp("peers") / "data", events=2_000, batches=2)
    written(made, (BID, OFFER, VIEW))
    return made


def test_each_workload_has_an_answer() -> None:
    assert sorted(ANSWERS) == sorted(TOPICS) == sorted(workloads.HEADWATER)
    assert set(workloads.HEADWATER) - set(workloads.SPARK) == {workloads.PATTERN}


def test_topics_and_files_have_the_same_events(data: Data) -> None:
    with hwlog.open(data.log) as log:
        for topic in (BID, OFFER, VIEW):
            ours = log.read(topic).table().select(["auction", "bidder", "price", "at"]).sort_by("at")
            theirs = pq.read_table(data.parquet(topic)).sort_by("at")
            assert ours.equals(theirs.cast(ours.schema))
            assert ours.num_rows == data.rows(topic)
            assert len(set(ours["at"].to_pylist())) == ours.num_rows


@pytest.mark.parametrize("workload", ["w1", "w4", "w8"])
def test_missing_and_wrong_rows_are_found(data: Data, tmp_path: Path, workload: str) -> None:
    with duckdb.connect() as duck:
        duck.sql(
            f"""CREATE VIEW bid AS SELECT * REPLACE ("at"::TIMESTAMP AS "at") FROM '{data.parquet(BID)}/*.parquet'"""
        )
        answer = ANSWERS[workload].replace("(at)", '("at")').replace("BY at", 'BY "at"')
        table = duck.sql(answer).to_arrow_table()
    pq.write_table(table, tmp_path / "rows.parquet")
    assert check(workload, data, tmp_path, whole=True) == table.num_rows
    pq.write_table(table.slice(1), tmp_path / "rows.parquet")
    assert check(workload, data, tmp_path, whole=False) == table.num_rows - 1
    with pytest.raises(AnswerWrong, match="in DuckDB"):
        check(workload, data, tmp_path, whole=True)
    wrong = table.set_column(0, table.column_names[0], [[-1] * table.num_rows])
    pq.write_table(wrong, tmp_path / "rows.parquet")
    with pytest.raises(AnswerWrong, match="are not in DuckDB"):
        check(workload, data, tmp_path, whole=False)


@pytest.mark.process
@pytest.mark.long
def test_the_workloads_run_and_their_answers_are_those_of_duckdb() -> None:
    words = [sys.executable, "-m", "benchmarks.peers", "--quick", "--alone"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    assert [(one["name"], one["value"] is not None) for one in results] == [(name, True) for name in ANSWERS]
