"""A read model on the engine has the rows that it has inline: any split into batches, any replay."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, SchemaInvalid
from headwater.operators import Evolve
from headwater.operators.evolve import with_keys
from headwater.sourcing import EventUnreadable, ProjectionFailed, ReadModel
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of
from tests.sourcing.account import DECIDER, Command, Deposit, Open, Withdraw
from tests.sourcing.read_models import BALANCES, TURNOVER


@dataclass(frozen=True)
class Unstorable:
    file: complex = 0j


def events_of(log: hw.Log, starts: dict[int, int]) -> pa.Table:
    """The rows of the topic behind these offsets, as a query gets them."""
    columns = [*log.schema("account.events").names, "_partition", "_offset"]
    return log.read("account.events", start=starts, columns=columns).table()


def changes(model: ReadModel[Any], batches: Sequence[pa.Table], replay: int | None = None) -> list[pa.Table]:
    operator = Evolve(model=model)
    tables = batches if model.by is None else [with_keys(model, batch) for batch in batches]
    return streamed(operator.contract, tables, replay=replay)


commands = st.one_of(st.just(Open("Ada")), st.integers(1, 9).map(Deposit), st.integers(1, 9).map(Withdraw))
sent = st.lists(st.lists(st.tuples(st.sampled_from("abc"), commands), max_size=6), min_size=1, max_size=4)


@costly(3)
@pytest.mark.parametrize("model", [BALANCES, TURNOVER], ids=lambda model: model.name)
@given(sent=sent, replay=st.integers(0, 3))
def test_a_view_has_the_rows_of_the_inline_projection(
    model: ReadModel[Any], sent: list[list[tuple[str, Command]]], replay: int
) -> None:
    clock = ManualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        hw.open(folder, clock=clock) as log,
        hw.Entities(log, "account", DECIDER, partitions=2) as accounts,
        model.inline(accounts, ":memory:") as projection,
    ):
        batches = []
        for batch in sent:
            ends = log.end_offsets("account.events")
            accounts.send_many(batch)
            clock.advance(seconds=100_000)
            batches.append(events_of(log, ends))
        found = table_of(changes(model, batches, replay), [model.key])
        inline = {row[model.key]: row for row in projection.query(f"SELECT * FROM {model.name}")}
        rows = {row[0]: model.read(row[1]) for row in projection_rows(projection, model)}
    assert inline.keys() == {key for [key] in found} == rows.keys()
    for [key], row in found.items():
        assert model.table([rows[key]]).to_pylist() == [{name: row[name] for name in model.schema.names}]
        scalars = [name for name in model.schema.names if name not in ("days", "last")]
        assert [inline[key][name] for name in scalars] == [row[name] for name in scalars]
    whole, _ = bounded(
        Evolve(model=model).contract,
        pa.concat_tables(batches) if model.by is None else with_keys(model, pa.concat_tables(batches)),
    )
    assert table_of([whole], [model.key]) == found


def projection_rows(projection: Any, model: ReadModel[Any]) -> list[tuple[str, bytes]]:
    return [tuple(row.values()) for row in projection.query(f"SELECT key, row FROM _{model.name}")]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[hw.Log]:
    with hw.open(tmp_path) as log, hw.Entities(log, "account", DECIDER, partitions=2):
        yield log


def one_event(log: hw.Log, event: str, data: str, *, schema: int = 1) -> pa.Table:
    row = {"entity": "a", "version": 1, "event": event, "schema": schema, "data": data, "at": 0}
    log.append("account.events", [row])
    return events_of(log, dict.fromkeys(range(2), 0))


@pytest.mark.parametrize(
    ("event", "schema", "data", "why"),
    [
        ("Renamed", 1, "{}", "no event of this name"),
        ("Deposited", 1, '{"euros": 5}', "no field 'euros'"),  # a class that was changed without an upcaster
        ("Deposited", 2, '{"amount": 5}', "versions up to 1"),
    ],
)
def test_an_event_that_cannot_be_read_ends_the_batch(log: hw.Log, event: str, schema: int, data: str, why: str) -> None:
    with pytest.raises(EventUnreadable, match=why):
        changes(BALANCES, [one_event(log, event, data, schema=schema)])


def test_an_upcaster_brings_an_old_event_to_the_newest_version(log: hw.Log) -> None:
    newer = replace(DECIDER, upcasters={("Deposited", 1): lambda body: {"amount": 100 * body["euros"]}})
    [table] = changes(replace(BALANCES, decider=newer), [one_event(log, "Deposited", '{"euros": 5}')])
    assert table.column("amount").to_pylist() == [500]


@pytest.mark.parametrize(
    ("evolve", "why"),
    [
        (lambda _row, _event: None, "as if it does not know the event"),
        (lambda _row, _event: {}, "returned a dict"),
        (lambda row, _event: row.nonsense, "AttributeError"),
    ],
)
def test_a_function_that_fails_names_the_event(log: hw.Log, evolve: Any, why: str) -> None:
    events = one_event(log, "Deposited", '{"amount": 5}')
    with pytest.raises(ProjectionFailed, match=f"event 1 of entity 'a'.*{why}"):
        changes(replace(BALANCES, evolve=evolve), [events])


def test_what_a_read_model_needs_is_checked_at_once() -> None:
    with pytest.raises(ArgumentInvalid, match="dataclass"):
        ReadModel("totals", DECIDER, initial=0, evolve=lambda total, _: total)
    with pytest.raises(ArgumentInvalid, match="no field"):
        replace(BALANCES, key="owner")
    with pytest.raises(SchemaInvalid, match="complex"):
        ReadModel("totals", DECIDER, initial=Unstorable(), evolve=lambda row, _: row)
