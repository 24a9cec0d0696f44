"""The App's checker agrees with a plain loop over the orders, and sees each kind of mistake in each output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.log import open as open_log
from tests.chaos.app.check import AppVerdict, Outputs, check
from tests.chaos.app.declaration import DELETED_BY
from tests.chaos.check import all_rows, refused_rows
from tests.chaos.producer import Orders
from tests.chaos.query import BILLS_SCHEMA, ORDERS, ORDERS_SCHEMA
from tests.chaos.test_check import looped

TARIFF = 3
_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}


def changes_of(orders: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The changelogs of both views, with a change for each order."""
    held: dict[str, tuple[int, int]] = {}
    spend: list[dict[str, Any]] = []
    tiers: list[dict[str, Any]] = []
    for offset, row in enumerate(sorted(orders, key=lambda row: (row["_partition"], row["_offset"]))):
        n, total = held.get(row["user"], (0, 0))
        held[row["user"]] = n, total = n + 1, total + row["amount"] * TARIFF
        place = {"user": row["user"], "_partition": 0, "_offset": offset}
        spend.append({**place, "n": n, "total": total, "_tombstone": False})
        tier = "gold" if total >= 4_000 else "silver" if total >= 1_000 else "new"
        deleted = total % DELETED_BY == 0
        values = {} if deleted else {"n": n, "total": total, "tier": tier}
        tiers.append({**place, **values, "_tombstone": deleted})
    return spend, tiers


def table(rows: list[dict[str, Any]], names: tuple[str, ...] = ()) -> pa.Table:
    types = {**BILLS_SCHEMA, "tier": "string", "_partition": "int32", "_offset": "int64"}
    columns = {name for row in rows for name in row if not names or name in names}
    schema = pa.schema([(name, _TYPES[types[name]] if name in types else pa.bool_()) for name in sorted(columns)])
    return pa.Table.from_pylist(rows, schema)


def newest(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = {row["user"]: row for row in changes}
    return [row for row in found.values() if not row["_tombstone"]]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    home: Path = tmp_path_factory.mktemp("app")
    with open_log(home / "log") as log:
        log.create(ORDERS, ORDERS_SCHEMA, partitions=4, key="user", durability="os")
        log.create("bills", BILLS_SCHEMA, partitions=3, key="user", durability="os")
        source = Orders(5, began_us=1_800_000_000_000_000)
        for _ in range(150):
            log.append(ORDERS, source.next())
        log.append(ORDERS, source.last())
        bills = looped(log, home / "state")
        log.append("bills", bills)
        orders = all_rows(log, ORDERS)
        spend, tiers = changes_of(orders.to_pylist())
        return Outputs(
            orders=orders,
            bills=all_rows(log, "bills"),
            refused=refused_rows(home / "state"),
            spend=table(spend),
            tiers=table(tiers),
            tables={
                "spend, its store": ("spend", table(newest(spend))),
                "tiers, its store": ("tiers", table(newest(tiers))),
                "bills in the lake": ("bills", table(bills)),
            },
        )


def faults(verdict: AppVerdict) -> dict[str, tuple[int, int, int, int]]:
    return {one.name: (one.lost, one.doubled, one.wrong, one.disordered) for one in verdict.outputs if not one.good}


def test_the_outputs_of_a_plain_loop_are_what_the_checker_expects(outputs: Outputs) -> None:
    found = check(outputs, tariff=TARIFF)
    assert found.good, found
    assert [one.expected == one.got > 0 for one in found.outputs] == [True] * 5
    assert 0 < outputs.tables["tiers, its store"][1].num_rows < 40  # some were deleted, some were not
    assert outputs.tables["bills in the lake"][1].num_rows == found.bills.expected


@pytest.mark.parametrize("name", ["spend, its store", "tiers, its store", "bills in the lake"])
def test_a_row_that_is_missing_twice_there_or_different_is_told(outputs: Outputs, name: str) -> None:
    kind, rows = outputs.tables[name]
    changed = rows.slice(2, 1).to_pylist()[0] | {"total": -1}
    other = pa.Table.from_pylist([changed], rows.schema)
    broken = pa.concat_tables([rows.slice(1, 1), rows.slice(1, 1), other, rows.slice(3)])
    found = check(replace(outputs, tables={**outputs.tables, name: (kind, broken)}), tariff=TARIFF)
    assert faults(found) == {name: (1, 1, 1, 0)}
    assert not found.good
    assert "lost" in str(found)


@pytest.mark.parametrize("view", ["spend", "tiers"])
def test_a_change_that_is_missing_repeated_or_late_is_told(outputs: Outputs, view: str) -> None:
    changes: pa.Table = getattr(outputs, view)
    live = [number for number, gone in enumerate(changes.column("_tombstone").to_pylist()) if not gone]
    last = changes.slice(live[-1], 1)
    end = [changes.num_rows, changes.num_rows + 1]

    def appended(row: pa.Table) -> Outputs:
        place = changes.column_names.index("_offset")
        moved = row.set_column(place, "_offset", pa.array([end[0]], pa.int64()))
        return replace(outputs, **{view: pa.concat_tables([changes, moved])})

    user = last.column("user")[0].as_py()
    earlier = next(n for n in live if changes.column("user")[n].as_py() == user and n != live[-1])
    name = f"{view}, its topic"
    assert faults(check(appended(last), tariff=TARIFF))[name][1] == 1
    assert faults(check(appended(changes.slice(earlier, 1)), tariff=TARIFF))[name][2:] == (1, 1)
    of_user = [row["user"] != user for row in changes.to_pylist()]
    assert faults(check(replace(outputs, **{view: changes.filter(of_user)}), tariff=TARIFF))[name][0] == 1


def test_another_tariff_bills_and_what_a_reader_was_told_are_seen(outputs: Outputs) -> None:
    assert not check(outputs, tariff=1).good
    assert not check(replace(outputs, bills=outputs.bills.slice(1)), tariff=TARIFF).good
    assert not check(outputs, tariff=TARIFF, problems=("own write not read",)).good
