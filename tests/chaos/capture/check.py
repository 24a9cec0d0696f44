"""The topics of a capture beside the tables of its database, after a series of kills.

The topic `items` must hold every committed version of every row once and in order, beside rows of snapshots, and its
newest rows must be the table. `notes` has no key: insertions without deletions must be the rows of the table, as often as
they are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.log import Log
from tests.chaos.capture.databases import Database

#: An operation and the version that it wrote; a deletion has none.
Step = tuple[str, int | None]
# Any: values of rows.
Rows = Mapping[int, Mapping[str, Any]]
EXAMPLES_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was committed in the database."""

    audit: Mapping[int, Sequence[tuple[int, str, int]]]
    """The versions, operations and numbers of each key, in the order of their commits."""
    items: Rows
    notes: Counter[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What the topics hold: the steps of each key in order, where "r" is a row of a snapshot."""

    steps: Mapping[int, Sequence[Step]]
    items: Rows
    notes: Counter[tuple[Any, ...]]


@dataclass
class CaptureVerdict:
    """How topics and targets compare with the tables."""

    committed: int = 0
    captured: int = 0
    snapshot: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    wrong: int = 0
    rows: int = 0
    notes: int = 0
    targets: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.disordered or self.wrong or self.problems)

    def example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"changes committed {self.committed}, captured {self.captured}, beside {self.snapshot} rows of snapshots",
                f"lost {self.lost}, doubled {self.doubled}, out of order {self.disordered}; "
                f"rows unlike the table's {self.wrong}, of {self.rows} with a key and {self.notes} without",
                *self.targets,
                *self.problems,
                *self.examples,
            ]
        )


def compare(written: Written, captured: Captured, *, first_streamed: int) -> CaptureVerdict:
    """Compare; changes whose audit number is `first_streamed` or more must be in the stream, others may be in a snapshot.

    >>> written = Written(audit={1: [(1, "c", 1), (2, "u", 2)]}, items={1: {"version": 2}}, notes=Counter())
    >>> good = Captured(steps={1: [("c", 1), ("u", 2)]}, items={1: {"version": 2}}, notes=Counter())
    >>> compare(written, good, first_streamed=0).good
    True
    >>> bad = Captured(steps={1: [("c", 1), ("u", 2), ("u", 2)]}, items={1: {"version": 2}}, notes=Counter())
    >>> compare(written, bad, first_streamed=0).doubled
    1
    """
    verdict = CaptureVerdict(rows=len(written.items), notes=written.notes.total())
    for key in {*written.audit, *captured.steps}:
        _compare_key(key, written.audit.get(key, ()), captured.steps.get(key, ()), first_streamed, verdict)
    for key in {*written.items, *captured.items}:
        if written.items.get(key) != captured.items.get(key):
            verdict.wrong += 1
            verdict.example(f"item {key}: table {written.items.get(key)}, topic {captured.items.get(key)}")
    for row, count in (written.notes - captured.notes).items():
        verdict.lost += count
        verdict.example(f"note {row} is in the topic {count} times too few")
    for row, count in (captured.notes - written.notes).items():
        verdict.doubled += count
        verdict.example(f"note {row} is in the topic {count} times too often")
    return verdict


def compare_target(name: str, table: Rows, rows: Rows, verdict: CaptureVerdict) -> None:
    """Compare a target's rows with the table's.

    >>> verdict = CaptureVerdict()
    >>> compare_target("SQLite", {1: {"version": 2}}, {}, verdict)
    >>> verdict.problems
    ['target SQLite: 1 of 1 rows differ, such as item 1']
    """
    differing = [key for key in {*table, *rows} if table.get(key) != rows.get(key)]
    if differing:
        verdict.problems.append(
            f"target {name}: {len(differing)} of {len(table)} rows differ, such as item {differing[0]}"
        )
        verdict.example(f"item {differing[0]}: table {table.get(differing[0])}, target {rows.get(differing[0])}")
    else:
        verdict.targets.append(f"target {name}: {len(rows)} rows, all as in the table")


def _compare_key(
    key: int,
    audit: Sequence[tuple[int, str, int]],
    steps: Sequence[Step],
    first_streamed: int,
    verdict: CaptureVerdict,
) -> None:
    expected: list[Step] = [(op, None if op == "d" else version) for version, op, _ in audit]
    streamed = [step for step in steps if step[0] != "r"]
    verdict.committed += len(expected)
    verdict.captured += len(streamed)
    verdict.snapshot += len(steps) - len(streamed)
    least = sum(number >= first_streamed for _, _, number in audit)
    if len(streamed) < least or streamed != expected[len(expected) - len(streamed) :]:
        must = expected[len(expected) - least :]
        lost = Counter(must) - Counter(streamed)
        doubled = Counter(streamed) - Counter(expected)
        verdict.lost += lost.total()
        verdict.doubled += doubled.total()
        verdict.disordered += not lost and not doubled
        verdict.example(f"item {key}: committed {expected[-8:]}, in the topic {list(steps)[-8:]}")
    verdict.disordered += _stale(steps, verdict, key)


def _stale(steps: Sequence[Step], verdict: CaptureVerdict, key: int) -> int:
    """How many rows of a snapshot stand behind a newer change of their key, or before an older one."""
    newest, wrong = 0, 0
    for op, version in steps:
        if version is None:
            continue
        if version < newest:
            wrong += 1
            verdict.example(f"item {key}: version {version} ({op}) behind {newest} of {list(steps)[-8:]}")
        newest = max(newest, version)
    return wrong


def read_tables(source: Database) -> Written:
    """What the database holds now."""
    session = source.session()
    audit: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for number, key, version, op in session.run("SELECT seq, id, version, op FROM audit ORDER BY id, version"):
        audit[int(key)].append((int(version), op, int(number)))
    names = session.columns("items")
    rows = session.run(f"SELECT {', '.join(names)} FROM items")
    notes = Counter((int(who), body) for who, body in session.run("SELECT who, body FROM notes"))
    session.close()
    return Written(audit=audit, items={int(row[0]): dict(zip(names, row, strict=True)) for row in rows}, notes=notes)


def read_topics(log: Log, *, items: str, notes: str) -> Captured:
    """What the topics hold now, of captures with the envelope of Debezium."""
    steps: dict[int, list[Step]] = defaultdict(list)
    newest: dict[int, dict[str, Any]] = {}
    for row in log.read(items).rows():
        if row["_tombstone"]:
            continue
        key, after = int(row["id"]), row["after"]
        steps[key].append((row["op"], None if row["op"] == "d" else after["version"]))
        newest.pop(key, None)
        if after is not None:
            newest[key] = after
    seen: Counter[tuple[Any, ...]] = Counter()
    for row in log.read(notes).rows():
        value, sign = (row["before"], -1) if row["op"] == "d" else (row["after"], 1)
        seen[value["who"], value["body"]] += sign
    return Captured(steps=steps, items=newest, notes=+seen)
