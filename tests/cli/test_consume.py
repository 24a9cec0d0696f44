"""Rows come out from any place, in the order of their appends, in the form that was asked for."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.cli.conftest import USERS, Cli


def ids(cli: Cli, *arguments: str) -> list[int]:
    return [row["id"] for row in cli("consume", "orders", "-e", "--json", *arguments).rows]


@pytest.mark.usefixtures("orders")
def test_rows_of_all_partitions_come_once(cli: Cli) -> None:
    assert sorted(ids(cli)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("orders")
def test_batches_come_in_the_order_of_their_appends(cli: Cli) -> None:
    for number in range(6, 12):
        Path("one.jsonl").write_text(f'{{"id": {number}, "user": "{USERS[number % 3]}"}}\n')
        cli("produce", "orders", "--file", "one.jsonl")
    assert ids(cli)[-6:] == [6, 7, 8, 9, 10, 11]
    assert ids(cli, "-o", "-2") == [10, 11]
    assert [row["id"] for row in cli("tail", "orders", "-n", "3", "-e", "--json").rows] == [9, 10, 11]


@pytest.mark.usefixtures("orders")
def test_the_record_of_a_row_is_a_contract(cli: Cli) -> None:
    [row] = cli("consume", "orders", "-n", "1", "-e", "--json").rows
    names = ["id", "user", "amount", "_partition", "_offset", "_appended_at", "_sent_at", "_headers"]
    assert list(row) == names
    assert row["_appended_at"].endswith("Z")


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("place", "count"),
    [
        ("start", 6),
        ("end", 0),
        ("1", 3),
        ("99", 0),
        ("-2", 2),
        ("-99", 6),
        ("@-1h", 6),
        ("@now", 0),
        ("@2100-01-01", 0),
    ],
)
def test_every_way_to_say_a_place(cli: Cli, place: str, count: int) -> None:
    assert len(ids(cli, "-o", place)) == count


@pytest.mark.usefixtures("orders")
def test_a_partition_can_be_chosen(cli: Cli) -> None:
    rows = cli("consume", "orders", "-e", "--json", "-p", "1").rows
    assert {row["_partition"] for row in rows} == {1}
    assert len(cli("consume", "orders", "-e", "--json", "-p", "0", "-p", "2").rows) == 4


@pytest.mark.usefixtures("orders")
def test_columns_can_be_chosen_and_come_in_that_order(cli: Cli) -> None:
    [row] = cli("consume", "orders", "-n", "1", "--json", "--columns", "_offset, user").rows
    assert list(row) == ["_offset", "user"]


@pytest.mark.usefixtures("orders")
def test_a_layout_is_filled_in(cli: Cli) -> None:
    Path("r.jsonl").write_text('{"id": 7, "user": "zoë"}\n')
    cli("produce", "orders", "--file", "r.jsonl", "-H", "source=test")
    [row] = cli("consume", "orders", "-o", "-1", "-e", "--json").rows
    done = cli("consume", "orders", "-o", "-1", "-e", "-f", r"%t[%p]@%o %k %v %h %T %%\t|\n")
    body = '{"id":7,"user":"zoë","amount":null}'
    place = f"orders[{row['_partition']}]@{row['_offset']}"
    assert done.out == f'{place} zoë {body} {{"source":"test"}} {row["_appended_at"]} %\t|\n'


@pytest.mark.usefixtures("orders")
def test_csv_has_one_line_of_names(cli: Cli) -> None:
    lines = list(csv.DictReader(io.StringIO(cli("consume", "orders", "-e", "--output", "csv").out)))
    assert sorted(int(line["id"]) for line in lines) == [0, 1, 2, 3, 4, 5]
    assert lines[0]["_headers"] == ""


@pytest.mark.usefixtures("orders")
def test_a_table_fits_a_terminal(cli: Cli) -> None:
    lines = cli("consume", "orders", "-e").out.splitlines()
    assert lines[0] == "PART  OFFSET  APPENDED                 id  user  amount"
    assert len(lines) == 7
    assert max(map(len, lines)) <= 80


def test_a_row_that_is_too_wide_for_a_table_becomes_a_paragraph(cli: Cli) -> None:
    columns = ", ".join(f"a_column_of_number_{number} int64" for number in range(8))
    cli("topic", "create", "wide", "--schema", columns)
    Path("w.jsonl").write_text('{"a_column_of_number_3": 73314510714175488}\n')
    cli("produce", "wide", "--file", "w.jsonl")
    lines = cli("consume", "wide", "-e").out.splitlines()
    assert lines[0].startswith("wide[0]@0  ")
    assert "  a_column_of_number_3  73314510714175488" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("orders")
def test_a_pipe_gets_everything(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    Path("r.jsonl").write_text('{"id": 7, "user": "%s"}\n' % ("x" * 300))
    cli("produce", "orders", "--file", "r.jsonl")
    assert "x" * 300 in cli("consume", "orders", "-e").out


@pytest.mark.usefixtures("orders")
def test_a_group_goes_on_where_it_stopped(cli: Cli) -> None:
    first = [row["id"] for row in cli("consume", "orders", "-g", "billing", "-n", "4", "--json").rows]
    second = [row["id"] for row in cli("consume", "orders", "-g", "billing", "-e", "--json").rows]
    assert len(first) == 4
    assert sorted(first + second) == [0, 1, 2, 3, 4, 5]
    assert cli("consume", "orders", "-g", "billing", "-e", "--json").rows == []


@pytest.mark.usefixtures("orders")
def test_a_new_group_begins_where_it_is_told(cli: Cli) -> None:
    assert cli("consume", "orders", "-g", "late", "-e", "-o", "end", "--json").rows == []
    assert cli("consume", "orders", "-g", "late", "-e", "--json").rows == []


@pytest.mark.usefixtures("orders")
def test_a_group_and_partitions_exclude_each_other(cli: Cli) -> None:
    assert cli("consume", "orders", "-g", "billing", "-p", "1").code == 2
