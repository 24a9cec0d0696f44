"""The benchmark of Kafka keeps to its contract: each part runs, and its last line can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kafka.__main__ import PARTS
from benchmarks.kafka_broker import kafka_jars
from benchmarks.peer_servers import PeerUnavailable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.process
def test_the_last_line_is_one_json_object_with_every_result(tmp_path: Path) -> None:
    try:
        kafka_jars()
    except PeerUnavailable as why:
        pytest.skip(str(why))
    words = [sys.executable, "-m", "benchmarks.kafka", "--quick", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == "kafka"
    results = {result["name"]: result for result in body["results"]}
    assert {*PARTS, "tumbling.frames"} <= set(results)
    assert all(result["value"] > 0 for result in results.values())
    assert list(tmp_path.iterdir()) == []


def test_every_part_of_the_promise_is_there() -> None:
    assert set(PARTS) == {
        "scan.frames",
        "scan.json",
        "scan.avro",
        "sink.frames",
        "sink.json",
        "tumbling",
        "latency",
    }
