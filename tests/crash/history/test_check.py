"""The checker finds each fault in histories written by hand, and none where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.crash.history.check import World, check
from tests.crash.history.record import Answer, History, Operation, Positions, Read, Span
from tests.crash.journal import IDS_PER_ACT, Act, Journal, Part

WORLD = World(
    topics={
        "kept": {},
        "other": {},
        "pair": {"partitions": 2, "key": "key"},
        "table": {"compact": True, "key": "key"},
        "ring": {"retention": "1000 B"},
        "recent": {"retention": "4 seconds"},
    },
    groups={"g": ("other",)},
)
SECOND = 1_000_000_000


@dataclass
class Book:
    """Writes a history down, line by line; each line takes a millisecond unless it is told otherwise."""

    history: History = field(default_factory=History)
    now_ns: int = 0

    def tick(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns

    def append(
        self,
        number: int,
        at: int | None,
        *,
        topic: str = "kept",
        rows: int = 1,
        keys: Sequence[str] = (),
        writer: str = "p0",
        **facts: Any,
    ) -> Operation:
        """An append that was acknowledged at an offset, or has no answer."""
        part = _part(topic, number, range(rows), keys or ["k"] * rows)
        act = Act(number=number, kind="append", writer=writer, parts=[part], **facts)
        return self._add(act, {} if at is None else {topic: {0: (at, at + rows)}})

    def transaction(self, number: int, places: Mapping[str, int] | None, *, topics: Sequence[str] = ()) -> Operation:
        """A transaction with one row for each topic."""
        names = list(places or topics)
        parts = [_part(topic, number, [place], ["k"]) for place, topic in enumerate(names)]
        act = Act(number=number, kind="transaction", writer="p0", parts=parts)
        return self._add(act, {topic: {0: (at, at + 1)} for topic, at in (places or {}).items()})

    def _add(self, act: Act, ranges: dict[str, dict[int, tuple[int, int]]]) -> Operation:
        operation = Operation(act=act, invoked_ns=self.tick())
        if ranges:
            operation.answers.append(Answer(at_ns=self.tick(), ranges=ranges))
        self.history.operations[act.number] = operation
        return operation

    def read(self, ids: Sequence[int], *, topic: str = "kept", start: int = 0, **facts: Any) -> None:
        span = Span(topic=topic, partition=0, start=start, stop=start + len(ids), ids=list(ids))
        self._read([span], **facts)

    def _read(self, spans: list[Span], **facts: Any) -> None:
        began_ns = facts.pop("began_ns", None) or self.tick()
        facts = {"tail": not facts.get("group"), **facts}
        self.history.reads.append(Read(reader="r", began_ns=began_ns, ended_ns=self.tick(), spans=spans, **facts))

    def final(self, **topics: Sequence[int]) -> None:
        for topic, ids in topics.items():
            self.read(ids, topic=topic, final=True)

    def positions(self, topic: str, offset: int, *, group: str = "") -> None:
        began_ns = self.tick()
        line = Positions(topic=topic, began_ns=began_ns, ended_ns=self.tick(), offsets={0: offset}, group=group)
        self.history.positions.append(line)

    def commit(self, number: int, offset: int) -> None:
        act = Act(number=number, kind="offsets", writer="c", offsets={"g/other/0": offset})
        self._add(act, {}).answers.append(Answer(at_ns=self.tick(), ranges={}))

    def broken(self) -> set[str]:
        """The names of the claims that do not hold."""
        return {violation.check for violation in check(self.history, WORLD).violations}


def _part(topic: str, number: int, places: Sequence[int], keys: Sequence[str]) -> Part:
    ids = [row(number, place) for place in places]
    return Part(topic=topic, partition=0, ids=ids, keys=list(keys), dead=[False] * len(ids))


def row(number: int, place: int = 0) -> int:
    return number * IDS_PER_ACT + place


def test_a_history_without_a_fault_is_clean() -> None:
    book = Book()
    book.append(1, 0, rows=2)
    book.append(2, None)  # killed, and it had happened
    book.append(3, None)  # killed before
    book.transaction(4, {"kept": 3, "other": 0})
    book.read([row(1, 0), row(1, 1), row(2), row(4, 0)])
    book.read([row(4, 1)], topic="other", group="g")
    book.commit(5, 1)
    book.final(kept=[row(1, 0), row(1, 1), row(2), row(4, 0)], other=[row(4, 1)])
    assert book.broken() == set()


# -- rows -------------------------------------------------------------------------------------------------------------


def test_a_lost_append_is_found() -> None:
    book = Book()
    book.append(1, 0)
    book.append(2, 1)
    book.final(kept=[row(1)])
    assert "no lost row" in book.broken()


def test_an_acknowledged_row_that_another_one_replaced_is_found() -> None:
    book = Book()
    book.append(1, 0)
    book.append(2, None)
    book.final(kept=[row(2)])
    assert "acknowledged places" in book.broken()


def test_an_offset_that_was_given_twice_is_found() -> None:
    book = Book()
    book.append(1, 0)
    book.append(2, 0)
    book.final(kept=[row(1)])
    assert "offsets given once" in book.broken()


def test_a_double_append_is_found() -> None:
    book = Book()
    book.append(1, 0, producer="p0", sequence=1)
    book.final(kept=[row(1), row(1)])
    assert "once only" in book.broken()


def test_a_retry_that_is_told_another_place_is_found() -> None:
    book = Book()
    operation = book.append(1, 0, producer="p0", sequence=1)
    operation.answers.append(Answer(at_ns=book.tick(), ranges={"kept": {0: (1, 2)}}))
    book.final(kept=[row(1)])
    assert "retries" in book.broken()


def test_a_row_without_an_append_is_found() -> None:
    book = Book()
    book.final(kept=[row(7)])
    assert "known rows" in book.broken()


def test_rows_of_a_writer_in_the_wrong_order_are_found() -> None:
    book = Book()
    book.append(1, None)
    book.append(2, None)
    book.final(kept=[row(2), row(1)])
    assert "order of a producer" in book.broken()


def test_an_append_in_front_of_one_that_was_over_is_found() -> None:
    book = Book()
    book.append(1, 1, writer="p0")
    book.append(2, 0, writer="p1")
    book.final(kept=[row(2), row(1)])
    assert "real-time order" in book.broken()


def test_an_offset_that_shows_another_row_later_is_found() -> None:
    book = Book()
    book.append(1, None)
    book.append(2, None)
    book.read([row(1)])
    book.final(kept=[row(2)])
    assert "stable offsets" in book.broken()


def test_a_gap_is_found() -> None:
    book = Book()
    book.append(1, 0, rows=3)
    span = Span(topic="kept", partition=0, start=0, stop=3, ids=[row(1, 0), row(1, 2)], offsets=[0, 2])
    book._read([span])
    book.final(kept=[row(1, 0), row(1, 1), row(1, 2)])
    assert book.broken() == {"dense offsets"}


def test_a_read_that_misses_what_was_acknowledged_before_is_found() -> None:
    book = Book()
    book.append(1, 0)
    book.read([])
    book.final(kept=[row(1)])
    assert book.broken() == {"no stale read"}


def test_a_read_beside_an_append_may_see_it_or_not() -> None:
    book = Book()
    began_ns = book.tick()
    book.append(1, 0)
    book.read([], began_ns=began_ns)
    book.final(kept=[row(1)])
    assert book.broken() == set()


def test_an_append_to_two_partitions_may_show_in_one_of_them_first() -> None:
    book = Book()
    act = Act(number=1, kind="append", writer="p0", parts=[_part("pair", 1, [0, 1], ["a", "b"])])
    operation = book._add(act, {})
    spans = [Span(topic="pair", partition=place, start=0, stop=1, ids=[row(1, place)]) for place in (0, 1)]
    torn = [spans[0], Span(topic="pair", partition=1, start=0, stop=0, ids=[])]
    book._read(torn)
    book._read(torn)
    operation.answers.append(Answer(at_ns=book.tick(), ranges={"pair": {0: (0, 1), 1: (0, 1)}}))
    book._read(spans, final=True)
    assert book.broken() == set()


def test_a_row_that_is_seen_before_it_was_appended_is_found() -> None:
    book = Book()
    book.read([row(1)])
    book.append(1, 0)
    book.final(kept=[row(1)])
    assert "no row too early" in book.broken()


def test_half_an_append_is_found() -> None:
    book = Book()
    book.append(1, None, rows=2)
    book.final(kept=[row(1, 0)])
    assert book.broken() == {"whole appends"}


# -- transactions -----------------------------------------------------------------------------------------------------


def test_a_torn_transaction_is_found_at_the_end() -> None:
    book = Book()
    book.transaction(1, None, topics=["kept", "other"])
    book.final(kept=[row(1, 0)], other=[])
    assert "atomic transactions" in book.broken()


def test_a_transaction_that_was_torn_for_a_moment_is_found() -> None:
    book = Book()
    operation = book.transaction(1, None, topics=["kept", "other"])
    book.read([row(1, 0)])
    book.read([], topic="other")
    operation.answers.append(Answer(at_ns=book.tick(), ranges={"kept": {0: (0, 1)}, "other": {0: (0, 1)}}))
    book.read([row(1, 1)], topic="other", group="g")
    book.final(kept=[row(1, 0)], other=[row(1, 1)])
    assert book.broken() == {"atomic transactions"}


def test_a_transaction_that_one_read_shows_in_one_of_two_partitions_is_found() -> None:
    book = Book()
    part = _part("pair", 1, [0, 1], ["a", "b"])
    act = Act(number=1, kind="transaction", writer="p0", parts=[part])
    began_ns = book.tick()
    book._add(act, {"pair": {0: (0, 1), 1: (0, 1)}})
    spans = [
        Span(topic="pair", partition=0, start=0, stop=1, ids=[row(1, 0)]),
        Span(topic="pair", partition=1, start=0, stop=1, ids=[row(1, 1)]),
    ]
    torn = [spans[0], Span(topic="pair", partition=1, start=0, stop=0, ids=[])]
    book._read(torn, began_ns=began_ns)
    book._read(spans, final=True)
    assert book.broken() == {"atomic transactions"}


def test_an_aborted_transaction_that_shows_is_found() -> None:
    book = Book()
    book.transaction(1, None, topics=["kept"]).resolving = "rollback"
    book.read([row(1)])
    book.final(kept=[row(1)])
    assert book.broken() == {"aborted transactions"}


def test_a_prepared_transaction_that_shows_before_it_is_committed_is_found() -> None:
    book = Book()
    operation = book.transaction(1, None, topics=["kept"])
    operation.prepared = True
    book.read([row(1)])
    operation.resolving, operation.resolving_ns = "commit", book.tick()
    book.final(kept=[row(1)])
    assert book.broken() == {"no row too early"}


# -- conditions -------------------------------------------------------------------------------------------------------


def test_a_conditional_append_that_did_not_see_the_end_is_found() -> None:
    book = Book()
    book.append(1, 0, expected_offset=0)
    book.append(2, 1, expected_offset=0)
    book.final(kept=[row(1), row(2)])
    assert book.broken() == {"conditional appends"}


def test_a_conditional_append_without_an_answer_is_where_it_was_expected_or_found() -> None:
    book = Book()
    book.append(1, 0)
    book.append(2, None, expected_offset=0)
    book.final(kept=[row(1), row(2)])
    assert book.broken() == {"conditional appends"}


def test_a_conditional_append_that_is_refused_for_an_end_that_never_was_is_found() -> None:
    book = Book()
    operation = book.append(1, None, expected_offset=0)
    operation.refused_ns, operation.actual = book.tick(), 5
    book.final(kept=[])
    assert book.broken() == {"conditional appends"}


def test_a_conditional_append_that_is_refused_for_an_end_of_the_past_is_found() -> None:
    book = Book()
    book.append(1, 0)
    book.append(2, 1)
    operation = book.append(3, None, expected_offset=2)
    operation.refused_ns, operation.actual = book.tick(), 1
    book.final(kept=[row(1), row(2)])
    assert book.broken() == {"conditional appends"}


def test_a_refused_append_that_shows_is_found() -> None:
    book = Book()
    operation = book.append(1, None, expected_offset=4)
    operation.refused_ns, operation.actual = book.tick(), 0
    book.final(kept=[row(1)])
    assert "refused appends" in book.broken()


def test_a_condition_on_a_key_that_had_a_newer_row_is_found() -> None:
    book = Book()
    book.append(1, 0, topic="table", keys=["a"], expected_key_offset=-1)
    book.append(2, 1, topic="table", keys=["a"], expected_key_offset=-1)
    book.final(table=[row(1), row(2)])
    assert book.broken() == {"conditional appends"}


# -- retention and compaction -----------------------------------------------------------------------------------------


def test_retention_takes_a_prefix() -> None:
    book = Book()
    for number in range(3):
        book.append(number, number, topic="ring")
    book.positions("ring", 1)
    book.read([row(1), row(2)], topic="ring", start=1, final=True)
    assert book.broken() == set()


def test_retention_that_takes_rows_in_the_middle_is_found() -> None:
    book = Book()
    for number in range(3):
        book.append(number, number, topic="ring")
    span = Span(topic="ring", partition=0, start=0, stop=3, ids=[row(0), row(2)], offsets=[0, 2])
    book._read([span], final=True)
    assert "dense offsets" in book.broken()


def test_retention_in_a_topic_that_keeps_everything_is_found() -> None:
    book = Book()
    book.append(1, 0)
    book.append(2, 1)
    book.positions("kept", 1)
    book.read([row(2)], start=1, final=True)
    assert book.broken() == {"retention"}


def test_a_start_that_goes_back_is_found() -> None:
    book = Book()
    book.append(1, 0, topic="ring")
    book.positions("ring", 1)
    book.positions("ring", 0)
    book.final(ring=[row(1)])
    assert book.broken() == {"retention"}


def test_a_row_that_goes_before_its_time_is_found() -> None:
    book = Book()
    book.append(1, 0, topic="recent")
    book.now_ns += 2 * SECOND
    book.positions("recent", 1)
    book.read([], topic="recent", start=1, final=True)
    assert book.broken() == {"retention"}


def test_a_row_that_goes_in_its_time_is_no_fault() -> None:
    book = Book()
    book.append(1, 0, topic="recent")
    book.now_ns += 5 * SECOND
    book.positions("recent", 1)
    book.read([], topic="recent", start=1, final=True)
    assert book.broken() == set()


def test_compaction_that_keeps_the_newest_row_of_each_key_is_no_fault() -> None:
    book = Book()
    book.append(1, 0, topic="table", rows=2, keys=["a", "b"])
    book.append(2, 2, topic="table", keys=["a"])
    span = Span(topic="table", partition=0, start=0, stop=3, ids=[row(1, 1), row(2)], offsets=[1, 2])
    book._read([span], final=True)
    assert book.broken() == set()


def test_compaction_that_takes_the_newest_row_of_a_key_is_found() -> None:
    book = Book()
    book.append(1, 0, topic="table", rows=2, keys=["a", "b"])
    book.append(2, 2, topic="table", keys=["a"])
    span = Span(topic="table", partition=0, start=0, stop=3, ids=[row(1, 0), row(2)], offsets=[0, 2])
    book._read([span], final=True)
    assert book.broken() == {"newest row of each key"}


# -- groups -----------------------------------------------------------------------------------------------------------


def consumed(book: Book) -> None:
    book.append(1, 0, topic="other", rows=3)
    book.final(other=[row(1, 0), row(1, 1), row(1, 2)])


def test_a_group_may_read_rows_again() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0), row(1, 1)], topic="other", group="g")
    book.read([row(1, 0), row(1, 1), row(1, 2)], topic="other", group="g")
    book.commit(2, 3)
    book.positions("other", 3, group="g")
    assert book.broken() == set()


def test_a_group_that_skips_a_row_is_found() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0)], topic="other", group="g")
    book.read([row(1, 2)], topic="other", start=2, group="g")
    assert book.broken() == {"consumed at least once"}


def test_a_group_that_does_not_come_to_the_end_is_found() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0)], topic="other", group="g")
    assert book.broken() == {"consumed at least once"}


def test_a_group_that_commits_what_it_has_not_read_is_found() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0)], topic="other", group="g")
    book.commit(2, 3)
    book.read([row(1, 1), row(1, 2)], topic="other", start=1, group="g")
    assert book.broken() == {"commits of what was read"}


def test_a_group_that_goes_back_is_found() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0), row(1, 1), row(1, 2)], topic="other", group="g")
    book.commit(2, 3)
    book.commit(3, 1)
    assert book.broken() == {"group positions"}


def test_a_position_that_forgets_a_commit_is_found() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0), row(1, 1), row(1, 2)], topic="other", group="g")
    book.commit(2, 1)
    book.commit(3, 3)
    book.positions("other", 1, group="g")
    assert book.broken() == {"group positions"}


def test_a_position_without_a_commit_is_found() -> None:
    book = Book()
    consumed(book)
    book.read([row(1, 0), row(1, 1), row(1, 2)], topic="other", group="g")
    book.positions("other", 2, group="g")
    assert book.broken() == {"group positions"}


def test_rows_that_are_copied_twice_are_found() -> None:
    book = Book()
    for number, start, stop in ((1, 0, 2), (2, 1, 3)):
        part = _part("kept", number, [0, 1], ["c", "c"])
        places = {"starts": {"copy/x/0": start}, "offsets": {"copy/x/0": stop}}
        act = Act(number=number, kind="transaction", writer="p0", parts=[part], **places)  # type: ignore[arg-type]
        book._add(act, {"kept": {0: (number * 2 - 2, number * 2)}})
    book.final(kept=[row(1, 0), row(1, 1), row(2, 0), row(2, 1)])
    assert book.broken() == {"copied exactly once"}


# -- laws -------------------------------------------------------------------------------------------------------------

Steps = list[tuple[str, int, bool]]
steps = st.lists(st.tuples(st.sampled_from(["append", "transaction", "read"]), st.integers(1, 3), st.booleans()))


def played(steps: Steps) -> tuple[Book, dict[str, list[int]]]:
    """A history of a log that keeps its word: each step happens at once, and is acknowledged or not."""
    book = Book()
    rows: dict[str, list[int]] = {"kept": [], "ring": []}
    for number, (kind, count, acknowledged) in enumerate(steps):
        if kind == "append":
            book.append(number, len(rows["kept"]) if acknowledged else None, rows=count)
            rows["kept"] += [row(number, place) for place in range(count)]
        elif kind == "transaction":
            places = {topic: len(ids) for topic, ids in rows.items()}
            book.transaction(number, places if acknowledged else None, topics=list(rows))
            for place, ids in enumerate(rows.values()):
                ids.append(row(number, place))
        else:
            start = max(0, len(rows["kept"]) - count)
            book.read(rows["kept"][start:], start=start)
    return book, rows


@given(steps=steps)
def test_a_log_that_keeps_its_word_is_never_accused(steps: Steps) -> None:
    book, rows = played(steps)
    book.final(**rows)
    assert book.broken() == set()


@given(steps=steps, number=st.integers(0), again=st.booleans())
def test_no_row_can_be_lost_or_doubled_unseen(steps: Steps, number: int, again: bool) -> None:
    book, rows = played([*steps, ("append", 1, True)])
    acknowledged = [
        one for operation in book.history.operations.values() if operation.answers for one in operation.act.ids
    ]
    victim = acknowledged[number % len(acknowledged)]
    for ids in rows.values():
        if victim in ids:
            ids.append(victim) if again else ids.remove(victim)
    book.final(**rows)
    assert book.broken()


# -- journals ---------------------------------------------------------------------------------------------------------


def test_a_history_is_read_from_journals_whose_processes_were_killed(tmp_path: Path) -> None:
    act = Act(number=1, kind="append", writer="p0", parts=[_part("kept", 1, [0], ["k"])])
    other = Act(number=2, kind="append", writer="p0", parts=[_part("kept", 2, [0], ["k"])])
    first, second = Journal(tmp_path / "a"), Journal(tmp_path / "b")
    first.tried(act, at_us=0)
    second.acknowledged(act, {"kept": {0: (0, 1)}})  # retried by the next process
    second.tried(other, at_us=0)
    with first.path.open("ab") as file:
        file.write(b'{"kind": "read", "rea')
    history = History.read([first.path, second.path])
    assert [operation.status for operation in history.operations.values()] == ["ok", "unknown"]
    assert history.operations[1].answers[0].ranges == {"kept": {0: (0, 1)}}


def test_an_error_that_no_operation_allows_for_is_a_fault() -> None:
    book = Book()
    book.history.errors.append("FrameCorrupt")
    assert book.broken() == {"errors"}
