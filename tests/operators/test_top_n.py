"""The first rows of each group: after any changes they are those of SQL, ranks and all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.columns import ALL
from headwater.engine.event_time import BatchTime
from headwater.engine.table_input import Follow
from headwater.errors import ArgumentInvalid
from headwater.operators import TopN
from headwater.operators.top_n import KNOWN
from tests.laws import costly
from tests.operators.batches import duck, streamed, table_of
from tests.operators.table_changes import Change, cut, rows_of, table_after, topic

GAMES = pa.schema([("player", pa.int64()), ("team", pa.string()), ("score", pa.int64()), ("age", pa.int64())])
ORDER = [("score", "desc"), ("age", "asc")]
Batches = list[list[Change]]


@st.composite
def games(draw: st.DrawFn) -> Batches:
    rest = st.tuples(st.sampled_from("ab"), st.integers(0, 4) | st.none(), st.integers(0, 2))
    changes = st.tuples(st.tuples(st.integers(1, 8)), st.none() | rest | rest | rest)
    return cut(draw, draw(st.lists(changes, max_size=30)))


def ranked(operator: TopN, batches: Sequence[pa.Table], **how: Any) -> list[pa.Table]:
    """What the operator makes of the rows of a topic, as `TopN` does of Spark's DataFrames."""
    moved = list(batches)
    if operator.by:
        moved = streamed(Follow(name="rows", key=("player",), emit=operator.emit).contract, moved, **how)
    more = [KNOWN] if operator.by else [KNOWN, ALL]
    for name in more:
        moved = [one.append_column(name, pa.array([0] * one.num_rows, pa.int32())) for one in moved]
    ordered = not operator.by
    return streamed(lambda rows: operator.contract(rows, key=("player",), ordered=ordered), moved, **how)


def by_sql(batches: Batches, *, by: str, n: int, ties: str = "row_number") -> list[tuple[Any, ...]]:
    last = table_after([change for batch in batches for change in batch])
    rows = [dict(zip(GAMES.names, (*key, *rest), strict=True)) for key, rest in last.items()]
    key = ", player" if ties == "row_number" else ""
    with duck() as connection:
        connection.register("games", pa.Table.from_pylist(rows, GAMES))
        found = connection.sql(
            f"""SELECT *, {ties}() OVER ({by} ORDER BY score DESC NULLS LAST, age NULLS LAST{key}) AS place
            FROM games QUALIFY place <= {n}"""
        ).fetchall()
    return sorted(found, key=repr)


@costly(3)
@given(
    batches=games(),
    n=st.integers(1, 4),
    ties=st.sampled_from(["row_number", "rank"]),
    by=st.sampled_from(["team", ()]),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 4),
)
def test_the_first_of_each_group_are_those_of_sql(
    batches: Batches, n: int, ties: Any, by: Any, emit: Any, replay: int
) -> None:
    operator = TopN(n=n, by=by, order=ORDER, key="player", ties=ties, emit=emit)
    outputs = ranked(operator, topic(batches, GAMES, keys=1), replay=replay, partitions=2 if by else 1)
    wanted = by_sql(batches, by="PARTITION BY team" if by else "", n=n, ties=ties)
    # A reader that keeps the rows by rank and one that keeps them by player have the same table.
    group = ["team"] if by else []
    for key in ("player", "rank") if ties == "row_number" else ("player",):
        assert rows_of(table_of(outputs, [*group, key])) == wanted


@given(batches=games(), n=st.integers(1, 4), by=st.sampled_from(["team", ()]), placed=st.booleans(), data=st.data())
def test_rows_that_are_only_added_need_no_key(
    batches: Batches, n: int, by: Any, placed: bool, data: st.DataObject
) -> None:
    """They are told apart by their place, or by what they hold; and no more of them are kept than are shown."""
    rows = [
        {
            **dict(zip(GAMES.names, (*key, *rest), strict=True)),
            "_partition": key[0] % 2,
            "_offset": 100 * number + place,
        }
        for number, batch in enumerate(batches)
        for place, (key, rest) in enumerate(batch)
        if rest is not None
    ]
    where = [("_partition", pa.int32()), ("_offset", pa.int64())]
    schema = pa.schema([*GAMES, *(where if placed else [])])
    everything = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    parts = [everything.slice(low, high - low) for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    if not by:
        parts = [one.append_column(ALL, pa.array([0] * one.num_rows, pa.int32())) for one in parts]
    make = TopN(n=n, by=by, order=ORDER).appended_contract
    outputs = streamed(make, parts, partitions=2 if by else 1)
    ties = "_partition, _offset" if placed else "player, team, score NULLS LAST, age"
    with duck() as connection:
        connection.register("games", everything)
        wanted = connection.sql(
            f"""SELECT player, team, score, age, row_number() OVER (
                {"PARTITION BY team" if by else ""} ORDER BY score DESC NULLS LAST, age NULLS LAST, {ties}) AS place
            FROM games QUALIFY place <= {n}"""
        ).fetchall()
    assert rows_of(table_of(outputs, ["team", "rank"] if by else ["rank"])) == sorted(wanted, key=repr)


def test_a_ranking_of_added_rows_keeps_no_more_than_it_shows() -> None:
    rows = pa.schema([*GAMES, ("_partition", pa.int32()), ("_offset", pa.int64())])
    contract = TopN(n=3, by="team", order=ORDER).appended_contract(rows)
    schema = pa.schema([*rows, ("_key", pa.int64())])
    state = schema.empty_table()
    for number in range(50):
        row = {"player": number, "team": "a", "score": number * 7 % 11, "age": 0, "_partition": 0, "_offset": number}
        stepped = contract.step(state, pa.Table.from_pylist([{**row, "_key": 0}], schema), BatchTime())
        assert not isinstance(stepped, tuple)
        state = stepped.state
        assert state.num_rows <= 3


def told(operator: TopN, *batches: list[Change]) -> list[tuple[Any, ...]]:
    outputs = ranked(operator, topic(batches, GAMES, keys=1), partitions=1)
    return [(row["_op"], row["player"], row["rank"]) for one in outputs for row in one.to_pylist()]


def test_who_is_overtaken_makes_room_first() -> None:
    operator = TopN(n=2, order=[("score", "desc")], key="player")
    start: list[Change] = [((1,), ("a", 3, 0)), ((2,), ("a", 2, 0)), ((3,), ("a", 1, 0))]
    assert told(operator, start, [((2,), ("a", 4, 0))])[2:] == [("-U", 1, 1), ("-U", 2, 2), ("+U", 2, 1), ("+U", 1, 2)]


def test_who_comes_behind_the_first_n_is_not_told() -> None:
    operator = TopN(n=1, order=[("score", "desc")], key="player")
    assert told(operator, [((1,), ("a", 3, 0))], [((2,), ("a", 2, 0))]) == [("+I", 1, 1)]
    moved_up = told(operator, [((1,), ("a", 3, 0)), ((2,), ("a", 2, 0))], [((1,), None)])
    assert moved_up == [("+I", 1, 1), ("-U", 1, 1), ("+U", 2, 1)]


def test_ties_are_settled_by_the_key() -> None:
    operator = TopN(n=2, order="score", key="player")
    assert told(operator, [((2,), ("a", 3, 0)), ((1,), ("a", 3, 0))]) == [("+I", 1, 1), ("+I", 2, 2)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TopN(n=0, order="score", key="player"), "`n` is 0"),
        (lambda: TopN(n=-1, order="score", key="player"), "at least 1"),
        (lambda: TopN(n=1.5, order="score", key="player"), "a whole number"),  # type: ignore[arg-type]
        (lambda: TopN(n=1, order=[], key="player"), "order"),
        (lambda: TopN(n=1, order="score", ties="dense_rank"), '"row_number" or "rank"'),  # type: ignore[arg-type]
        (lambda: TopN(n=1, order=[("score", "down")], key="player"), '"asc" or "desc"'),
        (lambda: TopN(n=1, order="score", key="player", emit="final"), "emit"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()
