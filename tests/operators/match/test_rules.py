"""Many rules at once: each finds what it would find alone, and they may change while the stream runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.contract import Broadcast
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine
from headwater.errors import ArgumentInvalid
from headwater.operators.match import MatchRules
from headwater.operators.match.language import render
from headwater.operators.match.language.rule import Rule
from headwater.operators.match.run.match_rules import as_json
from tests.laws import costly
from tests.operators.batches import _placed, bounded, state_folder
from tests.operators.match import naive
from tests.operators.match.laws import SCHEMA as PLAIN
from tests.operators.match.laws import Row, arrivals, comparable, ended, keyed

SECOND = 1_000_000
AT = pa.field("at", pa.timestamp("us", "UTC"))
SCHEMA = PLAIN.set(PLAIN.get_field_index("at"), AT)
RULES = Broadcast(log="nowhere", topic="rules")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TABLE = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.string()),
        pa.field("enabled", pa.bool_()),
        pa.field("_offset", pa.int64()),
        pa.field("_appended_at", pa.timestamp("us", "UTC")),
    ]
)
RISE = "MEASURES A.id AS a, B.id AS b PATTERN (A B) DEFINE A AS amount < 5, B AS amount > 5"
RUN = "MEASURES COUNT(*) AS rows PATTERN (A{2,} B) DEFINE A AS amount < 5, B AS amount > LAST(A.amount) + 3"


def table(rules: Sequence[tuple[str, str | None, bool]], *, since: Sequence[int] = ()) -> pa.Table:
    """Rules as their topic has them, in order; `since` are the seconds at which they came."""
    rows = [
        {
            "id": rule_id,
            "text": text,
            "enabled": enabled,
            "_offset": offset,
            "_appended_at": EPOCH + timedelta(seconds=since[offset] if since else 0),
        }
        for offset, (rule_id, text, enabled) in enumerate(rules)
    ]
    return pa.Table.from_pylist(rows, TABLE)


class Running:
    """`MatchRules` over the engine, batch after batch."""

    def __init__(self, *, partitions: int = 2, delay: float = 0, **given: Any) -> None:
        operator = MatchRules(rules=RULES, time=EventTime("at", delay=delay, future_max=None), by="key", **given)
        self.contract = replace(operator.contract(SCHEMA), partitions=partitions)
        self.folder = state_folder()
        self.batch = 0

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.folder.cleanup()

    def run(self, rows: Sequence[Row], rules: pa.Table, *, now: int | None = None) -> list[Row]:
        placed = _placed(pa.Table.from_pylist(list(rows), SCHEMA), self.contract)
        found = [
            PartitionEngine(self.contract, LocalFolder(Path(self.folder.name)), slot=slot).run(
                part,
                batch=self.batch,
                processing_us=None if now is None else now * SECOND,
                broadcast={"rules": rules},
            )
            for slot, part in enumerate(placed)
        ]
        self.batch += 1
        return [row for table in found for row in table.to_pylist()]

    def end(self, rules: pa.Table) -> list[Row]:
        found = []
        for slot in range(self.contract.partitions):
            folder = Path(self.folder.name)
            output, _ = ended(self.contract, folder, slot, batch=self.batch, broadcast={"rules": rules})
            found += output.to_pylist()
        return found

    def side(self, name: str) -> list[Row]:
        found = []
        for path in sorted(Path(self.folder.name).glob(f"sides/{name}/*.arrow")):
            with pa.memory_map(str(path)) as source:
                found += pa.ipc.open_file(source).read_all().to_pylist()
        return found


def wanted(rules: dict[str, Rule], rows: Sequence[Row]) -> list[Row]:
    """What each rule finds alone."""
    found = []
    for offset, (rule_id, rule) in enumerate(rules.items()):
        for key in dict.fromkeys(row["key"] for row in rows):
            own = [row for row in rows if row["key"] == key]
            outcome = naive.search(rule, own)
            measures = naive.output(replace(rule, rows="one"), own)
            for match, measured in zip(outcome.matches, measures, strict=True):
                last = match.taken[-1].row if match.taken else match.start
                found.append(
                    {
                        "rule": rule_id,
                        "version": offset,
                        "key": key,
                        "match": match.number,
                        "started_at": own[match.start]["at"],
                        "ended_at": own[last]["at"],
                        "measures": measured,
                    }
                )
    return found


def read(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            **row,
            "started_at": (row["started_at"] - EPOCH) // timedelta(microseconds=1),
            "ended_at": (row["ended_at"] - EPOCH) // timedelta(microseconds=1),
            "measures": json.loads(row["measures"]),
        }
        for row in rows
    ]


@st.composite
def several(draw: st.DrawFn) -> dict[str, Rule]:
    plain = naive.rules(sql=True).filter(lambda rule: rule.after.where in ("past_last", "to_next"))
    made = draw(st.lists(plain, min_size=1, max_size=5))
    return {f"r{number}": replace(rule, rows="one") for number, rule in enumerate(made)}


@costly(10, phases=[Phase.generate])
@given(data=st.data(), rules=several(), events=st.lists(naive.events(), min_size=1, max_size=3))
def test_each_rule_finds_what_it_would_find_alone(
    data: st.DataObject, rules: dict[str, Rule], events: list[list[Row]]
) -> None:
    rows = keyed(events)
    texts = table([(rule_id, render(rule), True) for rule_id, rule in rules.items()])
    try:
        expected = comparable(flat(wanted(rules, rows)))
    except naive.TooHard:
        assume(False)
    batches = data.draw(arrivals(rows, late_by_us=3 * SECOND))
    with Running(delay=3) as running:
        found = [row for batch in batches for row in running.run(batch, texts)]
        found += running.end(texts)
        assert running.side("refused") == []
    assert comparable(flat(read(found))) == expected


def flat(rows: Sequence[Row]) -> list[Row]:
    return [{**{name: value for name, value in row.items() if name != "measures"}, **row["measures"]} for row in rows]


def row(number: int, amount: int, *, key: str = "k", at: int | None = None) -> Row:
    at = number if at is None else at
    return {"key": key, "id": number, "at": at * SECOND, "amount": amount, "price": None, "kind": None}


def short(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return sorted((one["rule"], one["version"], one["match"], one["measures"]) for one in rows)


def test_rules_come_and_go_between_batches_and_the_others_keep_what_they_began() -> None:
    first = [("rise", RISE, True), ("run", RUN, True)]
    with Running(partitions=1) as running:
        assert running.run([row(1, 1), row(2, 2)], table(first)) == []
        assert running.run([row(5, 0, key="z")], table(first)) == []
        # `rise` is another from here on, and begins afresh; `run` has two rows already.
        changed = [*first, ("rise", RISE.replace("amount > 5", "amount > 6"), True)]
        found = running.run([row(6, 7), row(9, 0, key="z")], table(changed))
        found += running.run([row(10, 0, key="z")], table(changed))
        assert short(found) == [("run", 1, 1, '{"rows": 3}')]
        removed = [*changed, ("run", None, True), ("rise", RISE, False)]
        rows = [row(11, 1), row(12, 1), row(13, 9), row(20, 0, key="z")]
        assert running.run(rows, table(removed)) + running.run([row(30, 0, key="z")], table(removed)) == []
        back = [*removed, ("rise", RISE, True)]
        found = running.run([row(31, 1), row(32, 9), row(40, 0, key="z")], table(back))
        found += running.run([row(50, 0, key="z")], table(back))
        assert short(found) == [("rise", 5, 1, '{"a": 31, "b": 32}')]


def test_a_bad_rule_is_refused_in_one_batch_and_the_others_do_not_notice() -> None:
    bad = [
        ("words", "PATTERN (A", True),
        ("column", "PATTERN (A) DEFINE A AS amont > 1", True),
        ("function", "PATTERN (A) DEFINE A AS no_such_function(amount) > 1", True),
        ("key", "PARTITION BY kind PATTERN (A)", True),
        ("rise", RISE, True),
    ]
    with Running(partitions=1) as running:
        found = running.run([row(1, 1), row(2, 9)], table(bad, since=[5] * 5), now=10)
        found += running.run([row(9, 1)], table(bad, since=[5] * 5), now=20)
        found += running.run([row(19, 1)], table(bad, since=[5] * 5), now=30)
        refused = running.side("refused")
    assert short(found) == [("rise", 4, 1, '{"a": 1, "b": 2}')]
    assert sorted(one["rule"] for one in refused) == ["column", "function", "key", "words"]
    said = {one["rule"]: one["error"] for one in refused}
    for rule_id, word in (("column", "amont"), ("function", "no_such_function"), ("key", "PARTITION BY")):
        assert word in said[rule_id]


def test_without_rules_nothing_comes_out() -> None:
    with Running() as running:
        assert running.run([row(1, 1), row(2, 9)], table([])) == []
        assert running.run([row(3, 1), row(4, 9)], table([])) == []


def test_two_operators_with_the_same_rules_keep_to_their_own_keys() -> None:
    rules = table([("whole", f"PARTITION BY key {RISE}", True)])
    rows = pa.Table.from_pylist([row(1, 1), row(2, 9)], SCHEMA)

    def found(by: str) -> tuple[list[Row], list[Row]]:
        operator = MatchRules(rules=RULES, time="at", by=by)
        output, sides = bounded(operator.contract, rows, broadcast={"rules": rules})
        return output.to_pylist(), sides["refused"].to_pylist() if "refused" in sides else []

    assert [len(one) for one in found("key")] == [1, 0]
    assert [len(one) for one in found("id")] == [0, 1], "the text says another key, and is refused"


def test_measures_are_json_also_where_json_has_no_word_for_them() -> None:
    numbers = {"broken": pa.array([1.5, float("nan"), float("-inf")]), "words": pa.array(["a", None, "c"])}
    assert [json.loads(text) for text in as_json(numbers, 3)] == [
        {"broken": 1.5, "words": "a"},
        {"broken": None, "words": None},
        {"broken": None, "words": "c"},
    ]
    assert all("NaN" not in text and "Infinity" not in text for text in as_json(numbers, 3))
    lists = {"amounts": pa.array([[1.5, float("nan")], None, []], pa.list_(pa.float64()))}
    assert as_json(lists, 3) == ['{"amounts": [1.5, null]}', '{"amounts": null}', '{"amounts": []}']


def test_rules_over_rows_that_are_all_there() -> None:
    rules = table([("rise", RISE, True), ("bad", "PATTERN", True)])
    operator = MatchRules(rules=RULES, time="at", by="key")

    def contract(schema: pa.Schema) -> Any:
        return operator.contract(schema)

    rows = pa.Table.from_pylist([row(1, 1), row(2, 9), row(3, 1), row(4, 6)], SCHEMA)
    output, sides = bounded(contract, rows, broadcast={"rules": rules})
    assert short(output.to_pylist()) == [("rise", 0, 1, '{"a": 1, "b": 2}'), ("rise", 0, 2, '{"a": 3, "b": 4}')]
    assert [one["rule"] for one in sides["refused"].to_pylist()] == ["bad"]


def test_settings_that_make_no_sense_are_refused() -> None:
    given: Any = {"rules": RULES, "time": "at", "by": "key"}
    for wrong in (
        {"by": ()},
        {"rules": "rules"},
        {"timed_out": "yes"},
        {"late": "maybe"},
        {"partials_max": 0},
        {"steps_max": 0},
    ):
        with pytest.raises(ArgumentInvalid):
            MatchRules(**{**given, **wrong})
