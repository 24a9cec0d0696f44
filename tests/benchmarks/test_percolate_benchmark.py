"""The benchmark of stored queries keeps to its contract: every name of the promise is there, and a part runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.percolate.__main__ import PARTS
from benchmarks.percolate.data import SCHEMA, documents, fields, stored
from headwater.operators.percolate.run.stored_queries import StoredQueries

ROOT = Path(__file__).resolve().parents[2]


def test_every_part_of_the_promise_is_there() -> None:
    assert {"queries_1k", "queries_10k", "queries_100k", "queries_1m", "adding", "grammar"} == set(PARTS)


def test_all_queries_of_the_benchmark_can_be_used() -> None:
    held = StoredQueries(fields())
    held.store(stored(400))
    assert (len(held.index), held.invalid) == (400, [])
    assert documents(3).schema == SCHEMA


@pytest.mark.long
@pytest.mark.process
def test_a_part_runs_and_its_last_line_is_json(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.percolate", "--quick", "--only", "queries_100k", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert {result["name"] for result in body["results"]} == {
        "queries_100k",
        "queries_100k.brute",
        "queries_100k.brute_arrays",
    }
