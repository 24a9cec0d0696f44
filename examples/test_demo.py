"""`make demo`: its rows are the same for the same seed, its check sees every mistake, and it runs to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from demo.checks import EXPECTED, INPUTS, compare
from demo.world import LIMITS, OVEN_LIMIT_LATER, Rows, World

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS_MAX = 600.0


def fed(seconds: int = 20) -> dict[str, pa.Table]:
    """What a log would hold: rows of some seconds, with their places; the limit changes halfway."""
    world = World(stragglers=True)
    topics: Rows = {name: [] for name in INPUTS}

    def append(topic: str, rows: list[dict[str, object]], at: datetime) -> None:
        topics[topic] += [
            {**row, "_partition": 0, "_offset": len(topics[topic]) + number, "_appended_at": at}
            for number, row in enumerate(rows)
        ]

    append("limits", [{"sensor": name, "celsius_max": most} for name, most in LIMITS.items()], START)
    for second in range(seconds):
        begin, end = START + timedelta(seconds=second), START + timedelta(seconds=second + 1)
        for topic, rows in world.between(begin, end).items():
            append(topic, rows, end)
        if second == seconds // 2:
            append("limits", [{"sensor": "oven", "celsius_max": OVEN_LIMIT_LATER}], end)
    return {name: pa.Table.from_pylist(rows) for name, rows in topics.items()}


def outputs(inputs: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The outputs of the apps, the plain way: one row after the other."""
    payments: dict[int, dict[str, object]] = {}
    for row in inputs["payments"].to_pylist():
        if row["_appended_at"] - row["at"] < timedelta(minutes=10):
            payments.setdefault(row["id"], row)
    paid = sorted(payments.values(), key=lambda row: str(row["at"]))
    spend: dict[object, list[float]] = {}
    stolen = []
    for row in paid:
        amount = float(str(row["amount"]))
        before = spend.setdefault(row["card"], [])
        if amount > 500 and len(before) >= 2 and max(before[-2:]) < 5:
            stolen.append(row)
        before.append(amount)
    sums = [{"card": card, "payments": len(each), "total": sum(each)} for card, each in spend.items()]
    limits, alarms = dict(LIMITS), []
    changed = inputs["limits"].to_pylist()[-1]["_appended_at"]
    for row in inputs["readings"].to_pylist():
        most = OVEN_LIMIT_LATER if row["sensor"] == "oven" and row["_appended_at"] > changed else limits[row["sensor"]]
        if row["celsius"] > most:
            alarms.append({**row, "celsius_max": most})
    found = {"paid": paid, "stolen": stolen, "spend": sums, "alarms": alarms}
    found["big_spenders"] = [row for row in sums if float(str(row["total"])) > 1000]
    return {name: pa.Table.from_pylist(rows) for name, rows in found.items()}


def test_the_same_seed_makes_the_same_rows() -> None:
    assert fed(3) == fed(3)
    assert World(seed=1).between(START, START + timedelta(1 / 86400)) != World().between(
        START, START + timedelta(1 / 86400)
    )


def test_the_check_agrees_with_a_plain_recomputation_and_sees_each_mistake() -> None:
    inputs = fed()
    found = outputs(inputs)
    right = {one.name: one for one in compare({**inputs, **found}, settled={0: 500})}
    assert set(found) <= set(right)
    assert all(right[name].is_equal and right[name].rows > 0 for name in found)
    for name, rows in found.items():
        for wrong in (rows.slice(0, len(rows) - 1), pa.concat_tables([rows, rows.slice(0, 1)])):
            outcome = {one.name: one for one in compare({**inputs, **found, name: wrong}, settled={0: 500})}[name]
            assert outcome.differing > 0, name


@pytest.mark.slow
def test_the_demo_ends_with_every_output_equal_to_its_recomputation(tmp_path: Path) -> None:
    examples = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--seconds", "15", "--dir", str(tmp_path / "demo")],
        env={**os.environ, "PYTHONPATH": str(examples)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    for name in (*EXPECTED, "alarms"):
        (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [name]]
        assert "✓" in line
    assert "every output equals its recomputation" in done.stdout
    assert "kill -9" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo"]
