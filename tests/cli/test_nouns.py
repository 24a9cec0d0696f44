"""Schemas, files, settings and the machine: what the smaller commands say."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import headwater
from headwater.cli.commands import doctor
from headwater.optional import EXTRAS
from headwater.spark import java as java_of_spark
from tests.cli.conftest import ORDERS, Cli


@pytest.mark.usefixtures("orders")
def test_a_schema_is_shown_as_text_json_and_avro(cli: Cli) -> None:
    assert cli("schema", "show", "orders").out == "id int64 not null, user string, amount float64\n"
    assert cli("schema", "show", "orders", "--as", "json").json["columns"][0]["name"] == "id"
    assert cli("schema", "show", "orders", "--as", "avro").json["fields"][0] == {"name": "id", "type": "long"}
    assert list(cli("schema", "show", "orders", "--json").json) == ["topic", "version", "columns"]


@pytest.mark.usefixtures("orders")
def test_a_schema_is_checked_against_the_rules(cli: Cli) -> None:
    good = cli("schema", "check", "orders", "id int64 not null, user string, amount float64, note string", "--json")
    assert good.code == 0
    assert good.json == {
        "topic": "orders",
        "fits": True,
        "changes": [
            {
                "kind": "added",
                "column": "note",
                "old": "",
                "new": "string",
                "refused": "",
                "description": "note: added as string",
            }
        ],
    }
    bad = cli("schema", "check", "orders", "id int32 not null, user string, amount float64", "--json")
    assert bad.code == 2
    assert bad.json["fits"] is False


@pytest.mark.usefixtures("orders")
def test_two_versions_of_a_schema_are_compared(cli: Cli) -> None:
    cli("topic", "alter", "orders", "--add-column", "note string")
    cli("topic", "alter", "orders", "--add-column", "more int64")
    assert cli("schema", "diff", "orders").out == "+ more: added as int64\n"
    assert cli("schema", "diff", "orders", "1", "3").out == "+ note: added as string\n+ more: added as int64\n"
    assert cli("schema", "diff", "orders", "1", "9").code == 2


@pytest.mark.usefixtures("orders")
def test_a_sound_log_is_said_to_be_so(cli: Cli) -> None:
    done = cli("log", "verify", "--json")
    assert done.code == 0
    assert list(done.json) == ["ok", "topics", "partitions", "segments", "frames", "rows", "bytes", "findings"]
    assert (done.json["ok"], done.json["rows"], done.json["findings"]) == (True, 6, [])
    assert "All is well: 6 rows" in done.err


def damage(log: Path) -> Path:
    """Turn one bit in the middle of a row that was acknowledged."""
    [segment] = (log / "topics" / "orders" / "1").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-40] ^= 1
    segment.write_bytes(data)
    return segment


def test_damage_is_reported_exactly_and_repaired_only_with_a_yes(cli: Cli, orders: Path) -> None:
    segment = damage(orders)
    found = cli("log", "verify", "--json")
    assert found.code == 1
    [finding] = found.json["findings"]
    assert list(finding) == ["kind", "path", "topic", "partition", "position", "offset", "offset_next", "why", "action"]
    assert segment == orders / finding["path"]
    assert (finding["topic"], finding["partition"]) == ("orders", 1)
    before = segment.read_bytes()
    assert cli("log", "repair", "--dry-run").code == 0
    assert cli("log", "repair").code == 2
    assert segment.read_bytes() == before
    assert cli("log", "repair", "--yes").code == 0
    assert cli("log", "repair", "--yes").code == 0


def test_a_compaction_keeps_the_last_row_of_each_key(cli: Cli) -> None:
    cli("topic", "create", "table", "--schema", "id int64 not null, n int64", "--key", "id", "--compact")
    Path("t.jsonl").write_text("".join(f'{{"id": {n % 2}, "n": {n}}}\n' for n in range(10)))
    cli("produce", "table", "--file", "t.jsonl")
    assert cli("log", "compact", "table", "--dry-run", "--json").json[0]["done"] is False
    [record] = cli("log", "compact", "table", "--json").json
    assert (record["topic"], record["rows_removed"], record["done"]) == ("table", 8, True)
    assert [row["n"] for row in cli("consume", "table", "-e", "--json").rows] == [8, 9]
    assert [row["n"] for row in cli("tail", "table", "-n", "2", "-e", "--json").rows] == [8, 9]


def test_each_setting_says_where_it_came_from(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("headwater.toml").write_text("partitions = 4\n")
    monkeypatch.setenv("HEADWATER_CODEC", "lz4")
    settings = {one["name"]: one for one in cli("config", "show", "--json", "--log", "here").json}
    assert settings["log"]["origin"] == "flag --log"
    assert (settings["partitions"]["value"], settings["partitions"]["origin"]) == (4, "./headwater.toml")
    assert settings["codec"]["origin"] == "environment HEADWATER_CODEC"
    assert settings["durability"]["origin"] == "default"
    assert "origin" not in cli("config", "show", "--no-origin", "--json").json[0]


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that answers without being started."""
    monkeypatch.setattr(doctor, "check_java", lambda: doctor.Check(check="Java", status="ok", found="openjdk 21"))


@pytest.mark.usefixtures("orders", "java")
def test_the_doctor_looks_at_everything(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    record = cli("doctor", "--json").json
    checks = {one["check"]: one for one in record["checks"]}
    assert list(checks) == [
        "Python", "pyarrow", "Java", *(f"[{name}]" for name in EXTRAS),
        "Log", "Folder", "Disk", "File system", "Open files", "Wake-up",
    ]  # fmt: skip
    assert all(list(one) == ["check", "status", "found", "remedy"] for one in record["checks"])
    assert "6 rows" in checks["Log"]["found"]
    assert checks["[views]"]["found"] == "installed: views and SQL"
    assert (checks["[redis]"]["status"], record["ok"]) == ("missing", True)
    assert checks["[redis]"]["remedy"] == "Run `pip install 'headwater[redis]'`."


def test_the_doctor_finds_the_java_that_a_session_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_of_spark, "_FOLDERS", ())
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert doctor.check_java().found.endswith("installed by pip")
    monkeypatch.setattr(java_of_spark, "_bundled", lambda: None)
    found = doctor.check_java()
    assert (found.status, found.found) == ("missing", "found none; only Spark needs it")
    assert found.remedy.startswith("Run `")


def test_the_doctor_warns_of_a_network_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "_mounts", lambda: "host:/x / nfs4 rw 0 0\n")
    found = doctor.check_file_system(tmp_path)
    assert found.status == "warning"
    assert "local disk" in found.remedy


@pytest.mark.usefixtures("java")
def test_a_log_that_cannot_be_read_is_an_error_for_the_doctor(cli: Cli, orders: Path) -> None:
    (orders / "headwater.json").write_text(json.dumps({"format": 99, "id": "x"}))
    done = cli("doctor")
    assert done.code == 1
    assert "✗ Log" in done.out


@pytest.mark.usefixtures("java")
def test_maintenance_that_failed_is_an_error_for_the_doctor(cli: Cli, orders: Path) -> None:
    (orders / "topics/orders/0/maintenance.error").write_text("The disk is full.")
    done = cli("doctor")
    assert done.code == 1
    assert "maintenance failed for 1 partition, orders/0: The disk is full." in done.out
    assert "headwater log repair" in done.out


def test_the_version_is_that_of_the_package_and_of_what_it_stands_on(cli: Cli) -> None:
    assert cli("version").out.startswith("headwater ")
    assert cli("--version").out == cli("version").out
    assert "--version" in cli("--help").out
    names = ["headwater", "python", "pyarrow", "pyspark", "duckdb", "nicegui", "platform"]
    assert list(cli("version", "--json").json) == names


def test_schemas_are_listed_and_registered(cli: Cli, orders: Path) -> None:
    assert cli("schema", "register", "orders", f"{ORDERS}, note string").out == "orders has version 2 of its schema.\n"
    Path("order.avsc").write_text('{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}')
    assert cli("schema", "register", "orders-value", "order.avsc", "--subject").code == 0
    assert [line.split() for line in cli("schema", "list").out.splitlines()[1:]] == [
        ["orders", "topic", "2", "-"],
        ["orders-value", "subject", "1", "backward"],
    ]
    with headwater.open(orders) as log:
        assert log.topic("orders").schema.names == ["id", "user", "amount", "note"]
    refused = cli("schema", "register", "orders", "id string")
    assert refused.code == 2


def test_a_log_is_backed_up_and_restored(cli: Cli, orders: Path) -> None:
    made = cli("log", "backup", "monday", "--json")
    assert list(made.json) == ["target", "at_us", "topics", "files", "bytes", "bytes_shared", "left_out"]
    assert (made.json["topics"], made.json["left_out"]) == (1, [])
    assert cli("log", "backup", "monday").code == 5
    assert cli("log", "backup", "tuesday", "--since", "monday", "--json").json["bytes"] == made.json["bytes"]
    shutil.rmtree(orders)
    assert "The backup is whole: 1 topic in" in cli("log", "restore", "tuesday", "data", "--dry-run").err
    assert not orders.exists()
    assert cli("log", "restore", "tuesday", "data").code == 0
    assert len(cli("consume", "orders", "-e", "--json").rows) == 6
    assert cli("log", "restore", "nothing", "elsewhere").code == 3
