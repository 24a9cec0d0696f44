"""Each dead letter is redriven once, also after kills, repeated calls and concurrent ones; parked ones are skipped."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import LETTER_CRASH_POINTS
from headwater.log.dead_letters import (
    DeadLetter,
    Place,
    Selection,
    StoredDeadLetter,
    append_dead_letters,
    dead_letter_topics,
)
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.redrive import Outcome, park, redrive
from tests.laws import costly
from tests.log.dead_letters import all_dead_letters
from tests.log.processes import child

COMMIT_POINTS = ("commit.written", "commit.synced", "commit.recording", "commit.recorded", "commit.flipped")


def letter(number: int, **facts: object) -> DeadLetter:
    known: dict[str, object] = {"error": "EncodingInvalid", "message": "no JSON", "at_us": number, "key": b"k"}
    known |= {"topic": "events", "partition": 0, "offset": number, "value": str(number).encode()}
    return DeadLetter(**(known | facts))  # type: ignore[arg-type]


def add(log: EmbeddedLog, *letters: DeadLetter) -> None:
    for topic in dict.fromkeys(one.topic for one in letters):
        append_dead_letters(log, topic, [one for one in letters if one.topic == topic])


def values(log: EmbeddedLog, topic: str = "events") -> list[bytes]:
    return [row["value"] for row in log.read(topic).rows()]


def found(log: EmbeddedLog, topic: str = "events") -> list[StoredDeadLetter]:
    return all_dead_letters(log, topic)


def states(log: EmbeddedLog) -> list[str]:
    return [one.state for one in found(log)]


@pytest.fixture
def events(log: EmbeddedLog) -> EmbeddedLog:
    log.create("events", partitions=2)
    add(log, *(letter(number) for number in range(4)))
    return log


def test_rows_go_back_once(events: EmbeddedLog) -> None:
    assert redrive(events, "events").redriven == {"EncodingInvalid": 4}
    assert redrive(events, "events.dlq") == Outcome(seen=4)
    assert sorted(values(events)) == [b"0", b"1", b"2", b"3"]
    assert states(events) == ["redriven"] * 4
    assert {one.status.to for one in found(events) if one.status} == {"events"}


def test_a_dry_run_changes_nothing(events: EmbeddedLog) -> None:
    before = events.topics(internal=True)
    assert redrive(events, "events", dry_run=True).redriven.total() == 4
    assert park(events, "events", dry_run=True).parked.total() == 4
    assert events.topics(internal=True) == before
    assert values(events) == []


def test_a_row_says_which_attempt_it_is_and_keeps_its_headers(events: EmbeddedLog) -> None:
    headers = [("trace", b"t"), ("headwater.attempt", b"4"), ("headwater.letter", b"old")]
    add(events, letter(9, attempt=4, headers=headers))
    redrive(events, "events", Selection(offsets=(range(4, 5),)))
    [row] = events.read("events").rows()
    assert row["_headers"] == {"trace": b"t", "headwater.attempt": b"5", "headwater.letter": b"events.dlq/0/4"}


def test_what_failed_too_often_is_parked_and_stays_so(events: EmbeddedLog) -> None:
    add(events, letter(4, attempt=3))
    outcome = redrive(events, "events", attempts_max=3)
    assert (outcome.redriven.total(), outcome.parked.total()) == (4, 1)
    assert redrive(events, "events").changed == 0
    assert park(events, "events", undo=True).unparked.total() == 1
    assert redrive(events, "events").changed == 1


def test_parked_letters_are_left_alone_until_they_are_taken_up_again(events: EmbeddedLog) -> None:
    assert park(events, "events", Selection(offsets=(range(1, 3),))).parked.total() == 2
    redrive(events, "events")
    assert states(events) == ["redriven", "parked", "parked", "redriven"]
    assert park(events, "events").changed == 0
    park(events, "events", undo=True)
    assert states(events) == ["redriven", "open", "open", "redriven"]


def test_letters_written_meanwhile_wait_for_the_next_time(events: EmbeddedLog) -> None:
    def fail_again(_: Outcome) -> None:
        add(events, letter(100, attempt=2))

    assert redrive(events, "events", on_progress=fail_again).redriven.total() == 4
    assert states(events)[4:] == ["open"]


def test_a_rate_is_kept(events: EmbeddedLog) -> None:
    pauses: list[float] = []
    redrive(events, "events", rate=2, pause=pauses.append)
    assert [0 < pause <= limit for pause, limit in zip(pauses, (1, 2), strict=True)] == [True, True]


def test_rows_of_a_topic_with_a_schema_come_back_typed(log: EmbeddedLog) -> None:
    log.create("orders", "id int64 not null, at timestamp, price decimal(12, 2)", key="id", partitions=3)
    row = '{"id": 73314510714175488, "at": "2026-01-01T00:00:00Z", "price": "9.90"}'
    add(log, letter(0, topic="orders", row=row, value=None, key=None))
    redrive(log, "orders")
    [back] = log.read("orders").rows()
    assert (back["id"], str(back["price"]), back["at"].year) == (73314510714175488, "9.90", 2026)


def test_rows_without_a_key_go_back_to_their_partition(log: EmbeddedLog) -> None:
    log.create("orders", "id int64", partitions=3)
    add(log, *(letter(n, topic="orders", partition=n % 4, row=f'{{"id": {n}}}') for n in range(8)))
    redrive(log, "orders")
    rows = log.read("orders").rows()
    assert sorted(row["id"] for row in rows) == list(range(8))
    assert all(row["_partition"] == row["id"] % 4 for row in rows if row["id"] % 4 < 3)


def test_a_row_that_does_not_fit_stays_open_and_the_rest_goes_on(log: EmbeddedLog) -> None:
    log.create("orders", "id int64 not null")
    texts = ('{"id": 1}', '{"id": "x"}', "{", '{"id": null}', '{"id": 2}', "", '{"id": 1, "more": 1}')
    add(log, *(letter(number, topic="orders", row=text) for number, text in enumerate(texts)))
    outcome = redrive(log, "orders")
    assert outcome.redriven.total() == 2
    assert sorted(refusal.place.offset for refusal in outcome.refused) == [1, 2, 3, 5, 6]
    assert all(refusal.why for refusal in outcome.refused)
    assert [row["id"] for row in log.read("orders").rows()] == [1, 2]
    assert [one.state for one in found(log, "orders")].count("open") == 5


def test_rows_may_go_to_another_topic(events: EmbeddedLog) -> None:
    events.create("mended")
    redrive(events, "events", to="mended")
    assert (len(values(events, "mended")), values(events)) == (4, [])
    assert {one.status.to for one in found(events) if one.status} == {"mended"}


def test_a_letter_without_a_topic_stays_open_until_it_is_told_where_to_go(events: EmbeddedLog) -> None:
    events.delete("events")
    outcome = redrive(events, "events")
    assert (outcome.changed, len(outcome.refused)) == (0, 4)
    assert "Name another with `to`." in outcome.refused[0].why
    events.create("mended")
    assert redrive(events, "events", to="mended").redriven.total() == 4


def test_what_cannot_be_meant_is_refused(events: EmbeddedLog) -> None:
    events.create("other.dlq", "id int64")
    # Any: one argument each, of its own type.
    wrongs: list[dict[str, Any]] = [{"to": "events.dlq"}, {"attempts_max": 0}, {"rate": 0.0}]
    for wrong in wrongs:
        with pytest.raises(ArgumentInvalid):
            redrive(events, "events", **wrong)
    with pytest.raises(ArgumentInvalid, match="rows are dead letters"):
        redrive(events, "other")
    with pytest.raises(NotFound):
        redrive(events, "events", to="nowhere")
    with pytest.raises(NotFound):
        redrive(events, "nowhere")
    assert dead_letter_topics(events) == ["events.dlq"]
    assert states(events) == ["open"] * 4


def test_a_dead_letter_topic_created_again_has_open_dead_letters(events: EmbeddedLog) -> None:
    redrive(events, "events")
    events.delete("events.dlq")
    add(events, letter(7))
    assert states(events) == ["open"]


def test_statuses_of_letters_that_retention_took_go_too(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("events")
    add(log, letter(0))
    redrive(log, "events")
    log.alter("events.dlq", retention="1 second", segment_bytes_max=4096)
    clock.advance(seconds=3600)
    add(log, *(letter(number, value=b"x" * 4096) for number in range(1, 4)))
    clock.advance(seconds=3600)
    log.maintain()
    add(log, letter(4))
    redrive(log, "events")
    rows = log.read("__letters").rows()
    assert log.start_offsets("events.dlq")[0] > 0
    assert [row["_tombstone"] for row in rows if row["offset"] == 0] == [False, True]


# -- the model --------------------------------------------------------------------------------------------------------

REASONS = ("EncodingInvalid", "RowInvalid", "Timeout")
SELECTIONS = st.builds(
    Selection,
    reasons=st.sets(st.sampled_from(REASONS)).map(tuple),
    since_us=st.none() | st.integers(0, 20),
    until_us=st.none() | st.integers(0, 20),
    query=st.none() | st.sampled_from(("a", "b")),
    text=st.none() | st.sampled_from(("bad", "ROW")),
)
NEW = st.tuples(
    st.sampled_from(REASONS),
    st.integers(1, 4),
    st.sampled_from(("a", "b", None)),
    st.sampled_from(("bad row", "Bad", "?")),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(NEW, min_size=1, max_size=6)),
        st.tuples(st.just("redrive"), st.tuples(SELECTIONS, st.none() | st.integers(1, 4))),
        st.tuples(st.just("park"), SELECTIONS),
        st.tuples(st.just("undo"), SELECTIONS),
    ),
    max_size=12,
)


def wanted(one: dict[str, object], chosen: Selection) -> bool:
    """The selection once more, in words of the model."""
    at = int(str(one["at"]))
    return not (
        (chosen.reasons and one["error"] not in chosen.reasons)
        or (chosen.query and one["query"] != chosen.query)
        or (chosen.since_us is not None and at < chosen.since_us)
        or (chosen.until_us is not None and at >= chosen.until_us)
        or (chosen.text and chosen.text.lower() not in str(one["message"]).lower())
    )


# Any: what a step needs, by its name.
@costly(2)
@given(steps=STEPS)
def test_any_order_of_steps_does_what_the_model_does(steps: list[tuple[str, Any]]) -> None:
    model: list[dict[str, object]] = []
    back: Counter[bytes] = Counter()
    with TemporaryDirectory() as folder, open_log(folder, config=Config(maintenance="manual")) as log:
        log.create("events")
        for step in steps:
            match step:
                case ("add", list(new)):
                    for error, attempt, query, message in new:
                        facts = {"error": error, "attempt": attempt, "query": query, "message": message}
                        add(log, letter(len(model), **facts))
                        model.append(facts | {"at": len(model), "state": "open"})
                case (_, _) if not model:
                    continue
                case ("redrive", (Selection() as chosen, limit)):
                    redrive(log, "events", chosen, attempts_max=limit)
                    for one in model:
                        if one["state"] == "open" and wanted(one, chosen):
                            tired = limit is not None and int(str(one["attempt"])) >= limit
                            one["state"] = "parked" if tired else "redriven"
                            back[str(one["at"]).encode()] += not tired
                case (verb, Selection() as chosen):
                    park(log, "events", chosen, undo=verb == "undo")
                    old, new_state = ("parked", "open") if verb == "undo" else ("open", "parked")
                    for one in model:
                        if one["state"] == old and wanted(one, chosen):
                            one["state"] = new_state
        assert Counter(values(log)) == +back
        if model:
            assert states(log) == [one["state"] for one in model]


# -- kill -9, and two at once -----------------------------------------------------------------------------------------

REDRIVE = """
import os, sys
import headwater.log
from headwater.log import redrive
from headwater.testing import CrashAt, watch_points
redrive.LETTERS_MAX = 3
watch_points(CrashAt.parse(sys.argv[2]))
with headwater.log.open(sys.argv[1]) as log:
    redrive.redrive(log, "events", attempts_max=5)
"""


@pytest.mark.process
@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("point", [*LETTER_CRASH_POINTS, *COMMIT_POINTS])
def test_a_killed_redrive_doubles_and_loses_nothing(tmp_path: Path, point: str, visit: int) -> None:
    with open_log(tmp_path / "log") as log:
        log.create("events", partitions=2)
        add(log, *(letter(number, key=str(number).encode(), attempt=1 + number % 5) for number in range(10)))
    done = subprocess.run([sys.executable, "-c", REDRIVE, str(tmp_path / "log"), f"{point}:{visit}"], timeout=60)
    assert done.returncode == -9
    with open_log(tmp_path / "log") as log:
        after_crash = states(log)
        assert len(values(log)) == after_crash.count("redriven")
        redrive(log, "events", attempts_max=5)
        assert sorted(values(log)) == [str(number).encode() for number in range(10) if number % 5 != 4]
        assert states(log) == ["parked" if number % 5 == 4 else "redriven" for number in range(10)]


@pytest.mark.process
def test_two_at_once_put_each_row_back_once(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        log.create("events", partitions=2)
        add(log, *(letter(number, key=str(number).encode()) for number in range(400)))
    code = """
from headwater.log import redrive
redrive.LETTERS_MAX = 7
say("ready"); input()
say(redrive.redrive(log, "events").changed)
"""
    with ExitStack() as stack:
        children = [stack.enter_context(child(tmp_path / "log", code)) for _ in range(3)]
        assert [one.line() for one in children] == ["ready"] * 3
        for one in children:
            one.tell("go")
        changed = [int(one.line()) for one in children]
    assert sum(changed) == 400
    with open_log(tmp_path / "log") as log:
        assert sorted(values(log), key=int) == [str(number).encode() for number in range(400)]
        assert {row.place for row in found(log)} == {Place(0, n) for n in range(400)}
