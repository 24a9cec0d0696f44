"""The benchmark keeps to its contract: it runs, and its last line can be read by a machine. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import Bar, Result, Sample, median_cpu_rate, median_rate

ROOT = Path(__file__).resolve().parent.parent.parent


def run(folder: Path, only: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "benchmarks.log", "--quick", "--only", only, "--dir", str(folder)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.long
@pytest.mark.process
def test_the_last_line_is_one_json_object_with_every_result(tmp_path: Path) -> None:
    done = run(tmp_path, "append.fsync,ack.single,read.scan,open")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert body["benchmark"] == "log"
    results: dict[str, dict[str, Any]] = {result["name"]: result for result in body["results"]}
    assert {"append.fsync", "append.fsync.redis", "ack.single", "read.scan", "open"} <= set(results)
    for result in results.values():
        assert {"name", "value", "unit", "peer", "peer_value", "ratio"} <= set(result)
        if result["peer_value"]:
            assert result["ratio"] == pytest.approx(result["value"] / result["peer_value"])
    assert results["ack.single"]["p50"] <= results["ack.single"]["p99"]
    assert results["ack.single"]["unit"] == "ms"


@pytest.mark.long
@pytest.mark.process
def test_a_run_leaves_nothing_behind(tmp_path: Path) -> None:
    assert run(tmp_path, "ack.single").returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_an_unknown_part_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    done = run(tmp_path, "append.magic")
    assert done.returncode != 0
    assert "append.magic" in done.stderr
    assert "read.scan" in done.stderr


def test_a_bar_looks_at_the_figure_it_names() -> None:
    result = Result(name="a", value=6.0, unit="rows/s", peer="b", peer_value=2.0)
    assert Bar(figure="ratio", least=3).met(result)
    assert not Bar(figure="value", least=10).met(result)
    assert Bar(figure="p99", most=1).met(result) is None


def test_a_rate_is_the_median_of_its_rounds() -> None:
    samples = [Sample(10, 1.0, 2.0), Sample(10, 2.0, 5.0), Sample(10, 100.0, 1.0)]
    assert median_rate(samples) == 5
    assert median_cpu_rate(samples) == 5
