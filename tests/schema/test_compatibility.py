"""Compatibility levels: which Avro schema may follow which."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.schema.compatibility import conflicts

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


@pytest.mark.parametrize(
    ("level", "old", "new", "fits"),
    [
        ("BACKWARD", [ID], [ID, NOTE], True),
        ("BACKWARD", [ID, NOTE], [ID], True),
        ("BACKWARD", [ID], [ID, {"name": "n", "type": "string"}], False),
        ("BACKWARD", [ID], [ID, {"name": "n", "type": "string", "default": "-"}], True),
        ("BACKWARD", [{"name": "id", "type": "int"}], [ID], True),
        ("BACKWARD", [ID], [{"name": "id", "type": "int"}], False),
        ("FORWARD", [ID], [{"name": "id", "type": "int"}], True),
        ("FORWARD", [{"name": "id", "type": "int"}], [ID], False),
        ("FORWARD", [ID, {"name": "n", "type": "string"}], [ID], False),
        ("FULL", [ID], [ID, NOTE], True),
        ("FULL", [ID], [ID, {"name": "n", "type": "string"}], False),
        ("NONE", [ID], [NOTE], True),
    ],
)
def test_levels_ask_who_can_read_what(level: str, old: list[Any], new: list[Any], fits: bool) -> None:
    assert (not conflicts(level, record(*new), [record(*old)])) == fits


def test_a_transitive_level_asks_about_all_versions() -> None:
    versions = [record(ID, {"name": "n", "type": "string"}), record(ID)]
    new = record(ID, {"name": "n", "type": "long", "default": 0})
    assert conflicts("BACKWARD", new, versions) == []
    assert conflicts("BACKWARD_TRANSITIVE", new, versions)
