"""What every sink promises, whatever it writes to: the same suite runs against all of them."""

from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import sinks
from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.faults import DELIVERY_CRASH_POINTS, install
from headwater.log import Log
from headwater.log import open as open_log
from headwater.sinks import Fanout, ParquetSink, Sink, TopicSink
from headwater.sinks.errors import RowRefused, SinkFenced, SinkUnavailable
from headwater.testing import CrashAt, run_until_killed
from tests.laws import costly
from tests.sinks.frames import Frame, close_shared, parts_of
from tests.sinks.places import LONG, PLACES, SCHEMA, SHORT, Place, Row, batch_of, micro, params_of
from tests.sinks.streams import ids

FIRST: list[Row] = [("+I", 1, "one"), ("+I", 2, "two"), ("+I", 3, "three")]
SECOND: list[Row] = [("-U", 1, "one"), ("+U", 1, "uno"), ("-D", 2, None), ("+I", 4, 'say "four",\nplease')]
#: Which crash points a batch of changes passes on its way into each kind of place.
POINTS = {
    "postgres": ("delivery.before", "delivery.written", "delivery.committed"),
    "redis": ("delivery.before", "delivery.written", "delivery.committed"),
    "lake": ("delivery.before", "lake.staged", "lake.committed", "delivery.committed"),
    "parquet": ("delivery.before", "delivery.written", "parquet.published", "delivery.committed"),
    "search": ("delivery.before", "delivery.written", "delivery.committed"),
    "queue": ("delivery.before", "delivery.written", "delivery.committed"),
    "webhook": ("delivery.before", "delivery.sent", "delivery.written", "delivery.committed"),
    "mail": ("delivery.before", "delivery.sent", "delivery.written", "delivery.committed"),
}
each_point = pytest.mark.parametrize(
    ("kind", "point"), [(kind, point) for kind, points in POINTS.items() for point in points], indirect=["kind"]
)


def test_each_crash_point_of_a_sink_stands_in_its_code_and_in_the_list() -> None:
    sources = (Path(sinks.__file__).parent).glob("*.py")
    reached = {name for path in sources for name in re.findall(r'reach\("([^"]+)"\)', path.read_text(encoding="utf-8"))}
    assert reached == set(DELIVERY_CRASH_POINTS)


def test_a_sink_is_a_value_that_says_what_it_promises(place: Place) -> None:
    sink = place.sink()
    assert isinstance(sink, Sink)
    assert sink == place.sink()
    assert sink.guarantee in ("exactly once", "exactly once by key", "at least once")
    assert sink.name
    told = sink.for_query("spend", log=place.home / "log", state=place.home / "state")
    assert told.dead_letters == "spend"


@pytest.mark.core
def test_a_batch_that_is_done_again_changes_nothing(place: Place) -> None:
    sink = place.sink()
    for number, rows in enumerate([FIRST, SECOND]):
        sink.commit(batch_of(rows), micro(number))
        sink.commit(batch_of(rows), micro(number))
    sink.commit(batch_of(FIRST), micro(0, run="r2"))
    assert place.content() == place.expected([FIRST, SECOND])


def test_foreach_batch_feeds_a_sink_and_a_repeated_batch_runs_to_its_end(place: Place) -> None:
    """What the sink skips, stateful operators below it must not: the next batch needs their state."""
    sink = place.sink()
    for run in ("r1", "r2"):
        # Any: a stand-in for a DataFrame.
        frame: Any = Frame([lambda: batch_of(FIRST), lambda: batch_of(SECOND)], micro(0, run=run), SCHEMA)
        sink(frame, 0)
        assert frame.finished == [0, 1]
    assert place.content() == place.expected([[*FIRST, *SECOND]])
    with pytest.raises(ArgumentInvalid, match=r"a call by `writeStream\.foreachBatch`"):
        sink(frame, 1)


def test_a_batch_without_rows_is_a_batch(place: Place) -> None:
    sink = place.sink()
    sink.commit(batch_of([]), micro(0))
    sink.commit([], micro(1))
    sink.commit(batch_of(FIRST), micro(2))
    assert place.content() == place.expected([FIRST])


def test_two_queries_do_not_take_each_others_batches_for_their_own(place: Place) -> None:
    sink = place.sink()
    sink.commit(batch_of(FIRST), micro(0, query="one"))
    sink.commit(batch_of(SECOND), micro(0, query="other"))
    assert place.content() == place.expected([FIRST, SECOND])


def test_a_batch_passes_the_crash_points_at_which_it_is_killed_below(place: Place) -> None:
    place.sink().commit(batch_of(FIRST), micro(0))
    reached: set[str] = set()
    install(reached.add)
    try:
        place.sink().commit(batch_of(SECOND), micro(1))
    finally:
        install(None)
    reached &= set(DELIVERY_CRASH_POINTS)  # not those of the log in which a queue is
    assert reached == set(next(POINTS[name] for name, kind in PLACES.items() if isinstance(place, kind)))


@pytest.mark.process
@each_point
def test_each_batch_is_there_once_after_kill_9(place: Place, point: str) -> None:
    place.sink().commit(batch_of(FIRST), micro(0))
    place.commit_until_killed(SECOND, micro(1, run="r2"), point=point)
    partly = place.content()
    assert (
        partly in (place.expected([FIRST]), place.expected([FIRST, SECOND]))
        or place.sink().guarantee == "at least once"
    )
    place.sink().commit(batch_of(SECOND), micro(1, run="r3"))
    assert place.content() == place.expected([FIRST, SECOND])


def test_a_run_that_was_replaced_is_refused(place: Place) -> None:
    sink = place.sink()
    sink.commit(batch_of(FIRST), micro(0, run="old"))
    sink.begin(micro(1, run="new"))
    with pytest.raises(SinkFenced, match="replaced by run 'new'"):
        sink.commit(batch_of(SECOND), micro(1, run="old"))
    assert place.content() == place.expected([FIRST])
    sink.commit(batch_of(SECOND), micro(1, run="new"))
    assert place.content() == place.expected([FIRST, SECOND])


@pytest.mark.parametrize("kind", params_of("postgres", "redis", "webhook", "mail"), indirect=True)
def test_a_sink_that_is_down_is_said_to_be_and_gets_its_rows_when_it_is_back(place: Place) -> None:
    place.sink().commit(batch_of(FIRST), micro(0))
    done: list[BaseException | None] = []

    def deliver() -> None:
        try:
            place.sink(retry=LONG).commit(batch_of(SECOND), micro(1))
            done.append(None)
        except BaseException as error:
            done.append(error)

    thread = threading.Thread(target=deliver)
    with place.down():
        place.sink(retry=SHORT).check(SCHEMA)  # it cannot be asked now, and the first batch will see
        with pytest.raises(SinkUnavailable, match="could not be reached"):
            place.sink(retry=SHORT).commit(batch_of(SECOND), micro(1))
        thread.start()
    thread.join(timeout=60)
    assert done == [None]
    assert place.content() == place.expected([FIRST, SECOND])


BAD: list[Row] = [("+I", 7, "seven"), ("??", 8, "eight"), ("+I", 9, "nine")]


def test_a_row_that_is_refused_stops_the_query_and_is_named(place: Place) -> None:
    sink = place.sink()
    sink.commit(batch_of(FIRST), micro(0))
    with pytest.raises(RowRefused, match=r"id=8.*`_op` is '\?\?'"):
        sink.commit(batch_of(BAD), micro(1))
    assert place.content() == place.expected([FIRST])


def test_a_row_that_is_refused_becomes_one_letter_if_told_so(place: Place) -> None:
    with open_log(place.home / "log") as log:
        sink = place.sink(on_refused="dead_letter", log=log.home, dead_letters="spend")
        for run in ("r1", "r2"):
            sink.commit(batch_of(BAD), micro(0, run=run))
        letters = log.read("spend.dlq").rows()
        close_shared(log)
    assert [letter["row"] for letter in letters] == ['{"id":8,"name":"eight"}']
    assert {letter["error"] for letter in letters} == {"RowRefused"}
    assert "none of +I, -U, +U and -D" in letters[0]["message"]
    assert place.content() == place.expected([[BAD[0], BAD[2]]])


@pytest.mark.process
def test_a_row_that_is_refused_is_one_letter_after_kill_9(place: Place) -> None:
    with open_log(place.home / "log") as log:
        given: dict[str, Any] = {"on_refused": "dead_letter", "log": log.home, "dead_letters": "spend"}
        place.commit_until_killed(BAD, micro(0), point="delivery.letters", **given)
        sink = place.sink(**given)
        sink.commit(batch_of(BAD), micro(0, run="r2"))
        sink.commit(batch_of(BAD), micro(1, run="r2"))
        letters = log.read("spend.dlq").rows()
        close_shared(log)
    assert [letter["row"] for letter in letters] == ['{"id":8,"name":"eight"}'] * 2, "one for each batch"
    good = [BAD[0], BAD[2]]
    assert place.content() == place.expected([good, good])


def test_columns_that_could_never_fit_are_refused_before_the_first_batch(place: Place) -> None:
    if place.keyed:
        with pytest.raises(ColumnMisfit, match=r"'id'.*is its key, but not among the columns"):
            place.sink().check(SCHEMA.remove(0))
    place.sink().check(SCHEMA)


def test_dead_letters_need_a_log_before_anything_is_written(place: Place) -> None:
    with pytest.raises(ArgumentInvalid, match="the log that dead letters go to"):
        place.sink(on_refused="dead_letter").commit(batch_of(FIRST), micro(0))
    assert place.content() == place.expected([])


@pytest.mark.parametrize("kind", params_of(*(name for name, kind in PLACES.items() if kind.keyed)), indirect=True)
def test_a_row_without_a_key_is_refused(place: Place) -> None:
    rows = batch_of(FIRST)[0]
    broken = rows.set_column(0, SCHEMA.field("id"), pa.array([1, None, 3], pa.int64()))
    with pytest.raises(RowRefused, match="the key 'id' is null"):
        place.sink().commit([broken], micro(0))


@pytest.mark.process
def test_a_kill_between_two_sinks_repeats_the_batch_for_the_second_alone(log: Log, tmp_path: Path) -> None:
    files = ParquetSink(path=tmp_path / "files")
    sink = Fanout(sinks=(TopicSink(log=log.home, topic="out"), files))

    def deliver(number: int, run: str) -> None:
        # Any: a stand-in for a DataFrame.
        frame: Any = Frame(parts_of([2 * number], [2 * number + 1]), micro(number, run=run))
        sink(frame, number)

    deliver(0, "r1")
    errors = tmp_path / "errors"
    ended = run_until_killed(lambda: deliver(1, "r1"), at=CrashAt(point="delivery.between"), errors=errors)
    assert not errors.exists(), errors.read_text(encoding="utf-8")
    assert ended.killed
    assert (ids(log), ds.dataset(files.folder).count_rows()) == ([0, 1, 2, 3], 2)
    deliver(1, "r2")
    assert ids(log) == [0, 1, 2, 3]
    assert sorted(ds.dataset(files.folder).to_table().column("id").to_pylist()) == [0, 1, 2, 3]


numbers = itertools.count()
operations = st.tuples(
    st.sampled_from(["+I", "+U", "-U", "-D"]), st.integers(0, 4), st.sampled_from(["", "a", "b,\"c'"])
)
batches = st.lists(st.tuples(st.lists(operations, max_size=6), st.integers(1, 2)), max_size=5)


@costly(10)
@given(history=batches)
def test_any_changelog_in_any_batches_with_any_replays_gives_the_table(
    kind: type[Place], tmp_path: Path, history: list[tuple[list[Row], int]]
) -> None:
    home = tmp_path / str(next(numbers))
    home.mkdir()
    place = kind(home)
    for number, (rows, times) in enumerate(history):
        for _ in range(times):
            place.sink().commit(batch_of(rows), micro(number))
    assert place.content() == place.expected([rows for rows, _ in history])
    place.close()
