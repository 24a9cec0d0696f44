"""A hundred of ten thousand persons are erased: none of their values is on disk, and the others are whole."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import headwater as hw
from headwater.sourcing import Projection, RecordedEvent, erase, erased
from tests.sourcing.test_erasure import DECIDER, Customer, Order, Register, Registered, bytes_of

SUBJECTS, CHOSEN = 10_000, range(0, 10_000, 100)


def name_of(number: int) -> str:
    """A name that no other value contains."""
    return f"Name-{number * 7919 % 1_000_003:07d}-of-{number:05d}"


@pytest.mark.long
def test_a_hundred_of_ten_thousand_subjects_are_erased_and_the_others_are_whole(tmp_path: Path) -> None:
    def apply(db: sqlite3.Connection, event: RecordedEvent) -> None:
        if isinstance(event.event, Registered):
            db.execute("INSERT OR REPLACE INTO people VALUES (?, ?)", (event.id, event.event.name))

    tables = ["CREATE TABLE people(id TEXT PRIMARY KEY, name TEXT)"]
    ids = [f"c-{number:05d}" for number in range(SUBJECTS)]
    names = dict(zip(ids, map(name_of, range(SUBJECTS)), strict=True))
    chosen = [ids[number] for number in CHOSEN]
    with (
        hw.open(tmp_path / "log") as log,
        hw.Entities(log, "customer", DECIDER, snapshot_events=2) as customers,
        Projection(customers, tmp_path / "people.sqlite", tables=tables, apply=apply) as people,
    ):
        customers.send_many([(id, Register(name)) for id, name in names.items()])
        customers.send_many([(id, Order("a book")) for id in ids for _ in range(2)])
        customers.send_many([(id, Register(f"{name} again")) for id, name in names.items()])
        assert len(people.query("SELECT * FROM people")) == SUBJECTS
        # Copies in plain text, also as dead letters.
        for topic in ("mails", "mails.dlq"):
            log.create(topic, {"id": "string", "text": "string"}, codec="zstd")
            log.append(topic, [{"id": id, "text": f"Dear {name}"} for id, name in names.items()])
        customers.close()
    with hw.open(tmp_path / "log") as log:
        made = erase(log, chosen, why="they asked for it", rewrite=["mails*"])
        assert [each.name for each in made if each.complete] == chosen
        assert len(erased(log)) == len(chosen)
    found = bytes_of(tmp_path)
    with hw.open(tmp_path / "log") as log, hw.Entities(log, "customer", DECIDER, snapshot_events=2) as customers:
        for id in chosen:
            assert names[id].encode() not in found
        for id, name in names.items():
            shown = "[erased]" if id in chosen else f"{name} again"
            assert customers.load(id).state == Customer(shown, articles=("a book", "a book"))
        for topic in ("mails", "mails.dlq"):
            texts = {row["id"]: row["text"] for row in log.read(topic).rows()}
            assert texts == {id: f"Dear {'[erased]' if id in chosen else name}" for id, name in names.items()}
        with Projection(customers, tmp_path / "people.sqlite", tables=tables, apply=apply) as people:
            rows = {row["id"]: row["name"] for row in people.query("SELECT * FROM people")}
        assert rows == {id: "[erased]" if id in chosen else f"{name} again" for id, name in names.items()}
