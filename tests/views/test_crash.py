"""A keeper that is killed at any step of a transaction goes on exactly where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater.log
from headwater.faults import VIEW_CRASH_POINTS
from headwater.testing import CrashAt, run_until_killed
from headwater.views import ViewKeeper, ViewStore
from tests.views.conftest import SPEND, Opened, spec

pytestmark = pytest.mark.process
BATCHES = 5
APPLYING = [
    pytest.param(point, marks=[pytest.mark.core] * (point == "view.before_commit"))
    for point in VIEW_CRASH_POINTS
    if point != "view.before_switch"
]


def rows_of_batch(number: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"card": card, "total": float(number), "shop": None} for card in range(number, number + 4)
    ]
    return [*rows, {"card": number, "_tombstone": True}] if number % 2 else rows


def expected(batches: int) -> dict[int, float]:
    model: dict[int, float] = {}
    for number in range(batches):
        for row in rows_of_batch(number):
            if row.get("_tombstone"):
                model.pop(int(str(row["card"])), None)
            else:
                model[int(str(row["card"]))] = float(str(row["total"]))
    return model


def contents(store: ViewStore) -> dict[int, float]:
    return {
        row["card"]: row["total"] for row in store.scan(spec(), where=None, parameters=None, limit=None).to_pylist()
    }


@pytest.mark.parametrize("visit", [1, 3, BATCHES])
@pytest.mark.parametrize("point", APPLYING)
def test_rows_and_position_agree_after_kill_9(tmp_path: Path, open_store: Opened, point: str, visit: int) -> None:
    def work() -> None:
        log = headwater.log.open(tmp_path / "log")
        log.create("spend", SPEND, key="card", compact=True)
        keeper = ViewKeeper(log, open_store())
        keeper.add(spec())
        for number in range(BATCHES):
            log.append("spend", rows_of_batch(number))
            keeper.catch_up()

    ended = run_until_killed(work, at=CrashAt(point=point, visit=visit), errors=tmp_path / "errors")
    assert ended.killed, (tmp_path / "errors").read_text() if (tmp_path / "errors").exists() else ended
    done = visit if point == "view.committed" else visit - 1
    store = open_store()
    [stored] = store.stored()
    sizes = [len(rows_of_batch(number)) for number in range(BATCHES)]
    assert sum(stored.position.offsets.values()) == sum(sizes[:done])
    assert contents(store) == expected(done)
    with headwater.log.open(tmp_path / "log") as log:
        keeper = ViewKeeper(log, store)
        keeper.add(spec())
        keeper.catch_up()
    assert contents(store) == expected(visit)
    store.close()


def test_a_switch_that_was_cut_off_has_not_happened(tmp_path: Path, open_store: Opened) -> None:
    def work() -> None:
        log = headwater.log.open(tmp_path / "log")
        for name in ("spend", "spend.v2"):
            log.create(name, SPEND, key="card", compact=True)
            log.append(name, [{"card": 1, "total": float(len(name))}])
        keeper = ViewKeeper(log, open_store())
        keeper.add(spec())
        keeper.add(spec(topic="spend.v2", version=2))
        keeper.catch_up()
        keeper.switch("spend", 2)

    assert run_until_killed(work, at=CrashAt(point="view.before_switch"), errors=tmp_path / "errors").killed
    store = open_store()
    assert [(one.spec.version, one.active) for one in store.stored()] == [(1, True), (2, False)]
    assert store.query("SELECT total FROM spend").to_pylist() == [{"total": 5.0}]
    store.activate("spend", 2)
    assert store.query("SELECT total FROM spend").to_pylist() == [{"total": 8.0}]
    store.close()
