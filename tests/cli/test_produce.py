"""Rows go in from JSON lines, CSV, Parquet and plain lines; a line that does not fit is named by its number."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.conftest import Cli

BIG = 73314510714175488


@pytest.mark.usefixtures("orders")
def test_one_row_says_where_it_went(cli: Cli) -> None:
    done = cli("produce", "orders", stdin='{"id": 9, "user": "aaa"}\n')
    assert (done.code, done.err) == (0, "")
    [row] = cli("consume", "orders", "-o", "-1", "-e", "--json").rows
    assert done.out == f"orders[{row['_partition']}]@{row['_offset']}\n"


def test_the_record_of_a_run_is_a_contract(cli: Cli, an_empty_folder: Path) -> None:
    (an_empty_folder / "rows.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    assert cli("produce", "t", "--file", "rows.jsonl", "--create", "--json").json == {
        "topic": "t",
        "rows": 2,
        "skipped": 0,
        "ranges": [{"partition": 0, "offset_start": 0, "offset_next": 2}],
    }


def test_a_made_topic_is_announced_with_its_schema(cli: Cli, an_empty_folder: Path) -> None:
    (an_empty_folder / "rows.jsonl").write_text(
        '{"id": 1, "at": "2026-01-01T10:00:00Z", "tags": ["a"]}\n\n{"id": 2, "day": "2026-01-01", "note": null}\n'
    )
    done = cli("produce", "t", "--file", "rows.jsonl", "--create", "--partitions", "2", "--key-columns", "id")
    expected = "id int64, at timestamp, tags list<string>, day date, note string; 2 partitions"
    assert f"Made topic 't' ({expected}), as the first rows suggest." in done.err
    assert cli("topic", "describe", "t", "--json").json["topic"]["key"] == ["id"]


@pytest.mark.usefixtures("orders")
def test_integers_of_64_bits_stay_exact_in_every_format(cli: Cli) -> None:
    Path("big.jsonl").write_text(f'{{"id": {BIG}}}\n')
    Path("big.csv").write_text(f"id\n{BIG}\n")
    parquet.write_table(pa.table({"id": [BIG]}), "big.parquet")
    for file in ("big.jsonl", "big.csv", "big.parquet"):
        assert cli("produce", "orders", "--file", file).code == 0
    for form in (["--json"], ["--output", "csv"], ["-f", r"%v\n"], []):
        assert cli("consume", "orders", "-o", "-3", "-e", *form).out.count(str(BIG)) == 3


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("bad", "why"), [("nonsense", "line 2"), ('{"id": "x"}', "line 2"), ("[1]", "an object"), ('{"idd": 1}', "'idd'")]
)
def test_a_bad_line_stops_and_what_came_before_is_kept(cli: Cli, bad: str, why: str) -> None:
    Path("bad.jsonl").write_text(f'{{"id": 1}}\n{bad}\n{{"id": 3}}\n')
    done = cli("produce", "orders", "--file", "bad.jsonl", "--json")
    assert done.code == 2
    assert why in done.err
    assert "at line 2" in done.err
    assert done.json["rows"] == 1


@pytest.mark.usefixtures("orders")
def test_bad_lines_can_be_skipped_and_are_counted(cli: Cli) -> None:
    Path("bad.jsonl").write_text('{"id": 1}\nnonsense\n{"id": "x"}\n{"id": 4}\n')
    done = cli("produce", "orders", "--file", "bad.jsonl", "--on-error", "skip", "--json")
    assert done.code == 0
    assert (done.json["rows"], done.json["skipped"]) == (2, 2)
    assert [line.split(":")[1] for line in done.err.splitlines()[:2]] == [" line 2 was skipped", " line 3 was skipped"]


def test_csv_cells_become_what_the_columns_want(cli: Cli) -> None:
    schema = (
        "id int64, name string not null, price decimal(8,2), paid bool, at timestamp, tags list<string>, raw binary"
    )
    cli("topic", "create", "t", "--schema", schema)
    Path("t.csv").write_text(
        "\ufeffid,name,price,paid,at,tags,raw\n"
        '1,"a, ""b""\nc",9.90,true,2026-01-01T10:00:00+01:00,"[""x""]",xyz\n'
        ",,,,,,\n",
        encoding="utf-8",
    )
    assert cli("produce", "t", "--file", "t.csv").code == 0
    columns = "id,name,price,paid,at,tags,raw"
    assert cli("consume", "t", "-e", "--json", "--columns", columns).rows == [
        {
            "id": 1,
            "name": 'a, "b"\nc',
            "price": "9.90",
            "paid": True,
            "at": "2026-01-01T09:00:00Z",
            "tags": ["x"],
            "raw": "xyz",
        },
        {"id": None, "name": "", "price": None, "paid": None, "at": None, "tags": None, "raw": None},
    ]


@pytest.mark.usefixtures("orders")
def test_a_csv_line_is_named_also_behind_cells_of_many_lines(cli: Cli) -> None:
    Path("t.csv").write_text('id,user\n1,"a\nb\nc"\n2,x,y\n')
    done = cli("produce", "orders", "--file", "t.csv")
    assert done.code == 2
    assert "at line 5 cannot be read: it has 3 cells, and the header has 2" in done.err


def test_the_types_of_a_csv_file_are_guessed(cli: Cli) -> None:
    Path("t.csv").write_text("a,b,c,d,e\n1,1.5,true,2026-01-01,x\n2,,false,2026-01-02,\n")
    assert cli("produce", "t", "--file", "t.csv", "--create").code == 0
    assert cli("schema", "show", "t").out == "a int64, b float64, c bool, d date, e string\n"


@pytest.mark.usefixtures("orders")
def test_a_csv_without_names_has_the_columns_of_the_topic(cli: Cli) -> None:
    Path("t.csv").write_text("7,aaa,1.5\n")
    assert cli("produce", "orders", "--file", "t.csv", "--no-header").code == 0
    [row] = cli("consume", "orders", "-o", "-1", "-e", "--json", "--columns", "id,user,amount").rows
    assert row == {"id": 7, "user": "aaa", "amount": 1.5}


@pytest.mark.usefixtures("orders")
def test_a_row_of_a_parquet_file_is_named_by_its_number(cli: Cli) -> None:
    parquet.write_table(pa.table({"id": pa.array([1, None, 3])}), "bad.parquet")
    done = cli("produce", "orders", "--file", "bad.parquet")
    assert done.code == 2
    assert "at row 2" in done.err


@pytest.mark.usefixtures("orders")
def test_parquet_comes_through_a_pipe_too(cli: Cli) -> None:
    parquet.write_table(pa.table({"id": [1, 2]}), "some.parquet")
    done = cli("produce", "orders", "--format", "parquet", "--json", stdin=Path("some.parquet").read_bytes())
    assert done.json["rows"] == 2


def test_a_topic_without_a_schema_takes_lines_as_they_are(cli: Cli) -> None:
    cli("topic", "create", "raw")
    Path("lines.txt").write_bytes(b"first\n\xff\xfe\n")
    assert cli("produce", "raw", "--file", "lines.txt", "--key", "k", "-H", "a=1", "-H", "b=x=y").code == 0
    rows = cli("consume", "raw", "-e", "--json", "--columns", "key,value,_headers").rows
    assert rows == [
        {"key": "k", "value": "first", "_headers": {"a": "1", "b": "x=y"}},
        {"key": "k", "value": {"base64": "//4="}, "_headers": {"a": "1", "b": "x=y"}},
    ]


@pytest.mark.usefixtures("orders")
def test_a_key_is_the_value_of_the_key_column(cli: Cli) -> None:
    Path("r.jsonl").write_text('{"id": 1}\n')
    assert cli("produce", "orders", "--file", "r.jsonl", "--key", "zoe").code == 0
    assert cli("consume", "orders", "-o", "-1", "-e", "-f", "%k").out == "zoe"


@pytest.mark.usefixtures("orders")
def test_what_was_consumed_can_be_produced_again(cli: Cli) -> None:
    lines = cli("consume", "orders", "-e", "--json").out
    Path("copy.jsonl").write_text(lines)
    cli("topic", "create", "copy", "--schema", "id int64 not null, user string, amount float64")
    assert cli("produce", "copy", "--file", "copy.jsonl").code == 0
    columns = ["-e", "--json", "--columns", "id,user,amount"]
    assert cli("consume", "copy", *columns).rows == cli("consume", "orders", *columns).rows


@pytest.mark.usefixtures("orders")
def test_a_rate_is_kept(cli: Cli) -> None:
    import time

    Path("r.jsonl").write_text('{"id": 1}\n' * 20)
    started = time.monotonic()
    assert cli("produce", "orders", "--file", "r.jsonl", "--rate", "100").code == 0
    assert time.monotonic() - started >= 0.18


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("flag", [["--rate", "0"], ["-H", "nothing"], ["--on-error", "cry"], ["--format", "xml"]])
def test_flags_that_cannot_be_meant_are_refused(cli: Cli, flag: list[str]) -> None:
    assert cli("produce", "orders", "--file", "orders.jsonl", *flag).code == 2
