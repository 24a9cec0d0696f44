"""Topics can be made, listed, described, altered and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_a_topic_is_made_and_listed(cli: Cli) -> None:
    made = cli("topic", "create", "orders", "--schema", "id int64", "--partitions", "2")
    assert (made.code, made.out) == (0, "")
    assert "Topic 'orders' is ready in ./data: 2 partitions." in made.err
    assert cli("topic", "list").out.splitlines() == [
        "TOPIC   PARTITIONS  ROWS  SIZE  KEY  KEEPS  LAST APPEND",
        "orders           2     0   0 B  -    all    -",
    ]


@pytest.mark.usefixtures("orders")
def test_the_record_of_a_topic_in_a_list_is_a_contract(cli: Cli) -> None:
    [record] = cli("topic", "list", "--json").json
    assert record.pop("appended_at").endswith("Z")
    assert record.pop("bytes") > 0
    assert record == {
        "name": "orders",
        "partitions": 3,
        "rows": 6,
        "key": ["user"],
        "compact": False,
        "retention_seconds_max": None,
        "retention_bytes_max": None,
    }


@pytest.mark.usefixtures("orders")
def test_the_description_of_a_topic_is_a_contract(cli: Cli) -> None:
    record = cli("topic", "describe", "orders", "--json").json
    topic, holds = record["topic"], record["partitions"]
    assert len(topic.pop("id")) == 32
    assert topic.pop("created_us") > 0
    assert topic == {
        "name": "orders",
        "schema": {
            "columns": [
                {"name": "id", "type": "int64", "nullable": False},
                {"name": "user", "type": "string", "nullable": True},
                {"name": "amount", "type": "float64", "nullable": True},
            ]
        },
        "schema_version": 1,
        "schemaless": False,
        "partitions": 3,
        "key": ["user"],
        "time": None,
        "retention": {"seconds_max": None, "bytes_max": None},
        "compact": False,
        "tombstone_seconds_max": 86400.0,
        "durability": "fsync",
        "codec": "none",
        "segment_bytes_max": 64 * 1024 * 1024,
        "segment_seconds_max": 604800.0,
        "archive": False,
    }
    assert (record["rows"], record["bytes"] > 0) == (6, True)
    assert [sorted(one) for one in holds] == 3 * [
        ["appended_at_us", "bytes", "offset_next", "offset_start", "partition", "rows", "segments"]
    ]
    assert [(one["partition"], one["offset_start"], one["rows"]) for one in holds] == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]


@pytest.mark.usefixtures("orders")
def test_a_description_fits_a_terminal(cli: Cli) -> None:
    lines = cli("topic", "describe", "orders").out.splitlines()
    assert lines[0] == "orders"
    assert max(map(len, lines)) <= 80
    assert "PARTITION  START  NEXT  ROWS" in "\n".join(lines)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("verb", "alias"), [("list", "ls"), ("describe", "info")])
def test_the_short_names_do_the_same(cli: Cli, verb: str, alias: str) -> None:
    rest = [] if verb == "list" else ["orders"]
    assert cli("topic", alias, *rest).out == cli("topic", verb, *rest).out


def test_a_schema_is_taken_from_a_file_of_text_json_or_avro(cli: Cli, an_empty_folder: Path) -> None:
    forms = {
        "orders.schema": "id int64, name string",
        "orders.json": '{"id": "int64", "name": "string"}',
        "stored.json": '{"columns": [{"name": "id", "type": "int64", "nullable": true},'
        ' {"name": "name", "type": "string", "nullable": true}]}',
        "orders.avsc": '{"type": "record", "name": "o", "fields": [{"name": "id", "type": ["null", "long"]},'
        ' {"name": "name", "type": ["null", "string"]}]}',
    }
    for number, (name, text) in enumerate(forms.items()):
        (an_empty_folder / name).write_text(text)
        assert cli("topic", "create", f"t{number}", "--schema", name).code == 0
        assert cli("schema", "show", f"t{number}").out == "id int64, name string\n"


@pytest.mark.usefixtures("orders")
def test_altering_says_what_changed(cli: Cli) -> None:
    done = cli("topic", "alter", "orders", "--add-column", "note string", "--retention", "7 days")
    assert done.out.splitlines() == [
        "schema_version: 1 → 2",
        "retention_seconds_max: None → 604800.0",
        "note: added as string",
    ]
    assert cli("schema", "show", "orders").out.endswith("note string\n")


@pytest.mark.usefixtures("orders")
def test_a_rehearsed_alteration_changes_nothing(cli: Cli) -> None:
    done = cli("topic", "alter", "orders", "--add-column", "note string", "--partitions", "5", "--dry-run")
    assert done.out.splitlines() == ["would change partitions: 3 → 5", "would change note: added as string"]
    assert cli("topic", "list", "--json").json[0]["partitions"] == 3
    assert cli("schema", "show", "orders", "--json").json["version"] == 1


@pytest.mark.usefixtures("orders")
def test_an_alteration_without_changes_is_a_mistake(cli: Cli) -> None:
    assert cli("topic", "alter", "orders").code == 2


@pytest.mark.usefixtures("orders")
def test_a_column_is_dropped_only_by_force(cli: Cli) -> None:
    refused = cli("topic", "alter", "orders", "--schema", "id int64 not null, user string")
    assert refused.code == 2
    assert "`--force`" in refused.err
    assert cli("topic", "alter", "orders", "--schema", "id int64 not null, user string", "--force").code == 0


@pytest.mark.usefixtures("orders")
def test_nothing_is_deleted_without_a_yes(cli: Cli) -> None:
    refused = cli("topic", "delete", "orders")
    assert refused.code == 2
    assert "6 rows" in refused.err
    assert "`--yes`" in refused.err
    assert cli("topic", "delete", "orders", "--dry-run").code == 0
    assert cli("topic", "list", "--json").json != []
    assert cli("topic", "rm", "orders", "--yes").code == 0
    assert cli("topic", "list", "--json").json == []


@pytest.mark.usefixtures("orders")
def test_topics_of_the_log_itself_are_not_deleted(cli: Cli) -> None:
    for more in ("--yes", "--dry-run"):
        refused = cli("topic", "delete", "orders", "__offsets", more)
        assert (refused.code, "`headwater topic alter __offsets" in refused.err) == (2, True)
    assert [one["name"] for one in cli("topic", "list", "--json").json] == ["orders"]


@pytest.mark.usefixtures("orders")
def test_if_one_of_several_topics_is_missing_none_is_deleted(cli: Cli) -> None:
    assert cli("topic", "delete", "orders", "missing", "--yes").code == 3
    assert [one["name"] for one in cli("topic", "list", "--json").json] == ["orders"]
