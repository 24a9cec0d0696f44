"""Searching sees each row once, from either end, however often it is stopped; conditions can do no harm."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.errors import ArgumentInvalid
from headwater.log import Log, Topic
from headwater.log.embedded import local_log
from headwater.services import row_search as matching
from headwater.services.row_search import ConditionMatcher, Scan, TextMatcher
from headwater.services.row_text import Row
from headwater.services.statements import Statements
from headwater.units import MIB

WORDS = st.sampled_from(["Ada", "ada lovelace", "grace", "", "lin\\us", 'quo"te', "äöü", "a.a"])
ROWS = st.lists(st.lists(st.tuples(st.integers(0, 2), WORDS), min_size=1, max_size=8), max_size=6)
SCHEMA = "name string, number long"
ENDLESS = "number in (select n from range(1000000000000) t(n) where n < 0)"


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with tempfile.TemporaryDirectory() as folder, headwater.open(Path(folder) / "log") as opened:
        assert isinstance(opened, Log)
        yield opened


def filled(log: Log, batches: list[list[tuple[int, str]]]) -> dict[int, list[str]]:
    """Create a topic of three partitions again, and return what each partition should hold."""
    if "names" in log.topics():
        log.delete("names")
    log.create("names", SCHEMA, partitions=3, durability="memory")
    held: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for batch in batches:
        for partition, name in batch:
            log.append("names", [{"name": name, "number": len(held[partition])}], partition=partition)
            held[partition].append(name)
    return held


def places(records: list[Row]) -> list[tuple[int, int]]:
    return [(one.partition, one.offset) for one in records]


@given(
    batches=ROWS,
    window=st.integers(1, 5),
    found_max=st.integers(1, 4),
    newest_first=st.booleans(),
    sought=st.sampled_from(["ada", "A", "a.a", "ö", "zzz", 'quo\\"']),
    match_case=st.booleans(),
)
def test_a_search_finds_each_row_that_holds_the_text_once(
    log: Log,
    batches: list[list[tuple[int, str]]],
    window: int,
    found_max: int,
    newest_first: bool,
    sought: str,
    match_case: bool,
) -> None:
    held = filled(log, batches)
    matcher = TextMatcher(sought, match_case=match_case)
    scan = Scan(log, "names", matcher, newest_first=newest_first, window_rows=window)
    assert scan.total == sum(len(names) for names in held.values())
    found: list[Row] = []
    while not scan.is_done:
        before = scan.scanned
        some = scan.step(seconds=0, found_max=found_max)  # no time at all: one window, and one more step
        assert len(some) <= found_max
        assert scan.scanned > before
        found += some
    assert scan.scanned == scan.total
    assert scan.found == len(found)
    for partition, names in held.items():
        fit = [
            number
            for number, name in enumerate(names)
            if _holds(f'{{"name":{_quoted(name)},"number":{number}}}', sought, match_case)
        ]
        got = [offset for number, offset in places(found) if number == partition]
        assert got == (fit[::-1] if newest_first else fit)


@given(batches=ROWS, window=st.integers(1, 5), found_max=st.integers(1, 4), newest_first=st.booleans())
def test_rows_are_found_in_the_order_of_their_appends_over_all_partitions(
    log: Log, batches: list[list[tuple[int, str]]], window: int, found_max: int, newest_first: bool
) -> None:
    filled(log, batches)
    scan = Scan(log, "names", TextMatcher("a"), newest_first=newest_first, window_rows=window)
    times: list[int] = []
    while not scan.is_done:
        times += [row.appended_us for row in scan.step(seconds=60, found_max=found_max)]
    assert times == sorted(times, reverse=newest_first)
    assert len(times) == sum(len(batch) for batch in batches)  # each row has the column "name"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _holds(text: str, sought: str, match_case: bool) -> bool:
    return sought in text if match_case else sought.lower() in text.lower()


def test_headers_keys_and_bytes_are_searched(log: Log) -> None:
    log.create("raw")
    log.append("raw", [("needle-key", b"one")])
    log.append("raw", [("k", b"two")], headers={"trace": b"needle-header"})
    log.append("raw", [("k", bytes([255, 170]))])
    for text, parts, expected in (
        ("NEEDLE", ("key", "value", "headers"), [0, 1]),
        ("needle", ("key",), [0]),
        ("trace: needle", ("headers",), [1]),
        ("ff aa", ("value",), [2]),
        ("needle", ("value",), []),
    ):
        scan = Scan(log, "raw", TextMatcher(text, parts=parts), newest_first=False)  # type: ignore[arg-type]
        assert [one.offset for one in scan.step(seconds=5, found_max=10)] == expected


def test_a_pattern_and_a_condition_find_rows(log: Log) -> None:
    filled(log, [[(0, "ada"), (0, "grace"), (0, "ada")]])
    scan = Scan(log, "names", TextMatcher(r'"name":"(ada|x)","number":[1-9]', is_pattern=True))
    assert [one.offset for one in scan.step(seconds=5, found_max=10)] == [2]
    topic = log.topic("names")
    for condition, expected in (
        ("name = 'ada'", [0, 2]),
        ("number > 0 and name like 'g%' -- a comment", [1]),
        ("_offset = 2", [2]),
        ("true", [0, 1, 2]),
        ("null", []),
    ):
        matcher = ConditionMatcher(topic, condition)
        scan = Scan(log, "names", matcher, newest_first=False)
        assert [one.offset for one in scan.step(seconds=5, found_max=10)] == expected


class Counted(TextMatcher):
    """A matcher that keeps how many rows each of its batches had."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.rows: list[int] = []

    def mask(self, topic: Topic, data: pa.RecordBatch) -> matching.Mask:
        self.rows.append(data.num_rows)
        return super().mask(topic, data)


def test_rows_of_small_appends_are_matched_together(log: Log) -> None:
    filled(log, [[(0, "ada"), (0, "grace"), (0, "ada")]])
    matcher = Counted("ada")
    scan = Scan(log, "names", matcher, partition=0)
    assert [one.offset for one in scan.step(seconds=5, found_max=10)] == [2, 0]
    assert matcher.rows == [3]


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "nothing = 1",
        "name = ",
        "1=1); DROP TABLE batch; SELECT (1",
        "count(*) > 1",
        "exists (from read_text('/etc/hostname'))",
        "exists (from read_csv('/etc/passwd'))",
        "getenv('HOME') is not null",
        "exists (select set_config('a', 'b'))",
        "true) union all select 1 where (true",
        "true, true",
        "_offset in (select _offset from batch)",
        ENDLESS,
    ],
)
def test_a_condition_that_is_wrong_or_harmful_is_refused_in_one_sentence(
    log: Log, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "CONDITION_SECONDS_MAX", 0.2)
    filled(log, [[(0, "ada")]])
    with pytest.raises(ArgumentInvalid, match="condition"):
        matcher = ConditionMatcher(log.topic("names"), condition)
        Scan(log, "names", matcher).step(seconds=1, found_max=1)


class Ended:
    """A matcher whose second batch is ended in the middle; all rows fit."""

    def __init__(self) -> None:
        self.batches = 0
        self.scan: Scan | None = None

    def mask(self, topic: Topic, data: pa.RecordBatch) -> matching.Mask:
        assert topic.name == "names"
        self.batches += 1
        if self.batches == 2 and self.scan is not None:
            self.scan.cancel()
            raise ArgumentInvalid(name="condition", value="true", expected="SQL (it was stopped)")
        return np.ones(data.num_rows, dtype=np.bool_)

    def cancel(self) -> None:
        pass


def test_a_step_that_is_cancelled_keeps_what_it_has_found(log: Log) -> None:
    filled(log, [[(0, "ada"), (0, "grace"), (0, "lin")]])
    matcher = Ended()
    scan = matcher.scan = Scan(log, "names", matcher, newest_first=False, partition=0, window_rows=1)
    assert [one.offset for one in scan.step(seconds=60, found_max=10)] == [0]
    assert [one.offset for one in scan.step(seconds=60, found_max=10)] == [1, 2]
    assert scan.is_done


def cancelled(log: Log, statements: Statements | None) -> None:
    """Cancel a search whose condition would take for ever."""
    scan = Scan(log, "names", ConditionMatcher(log.topic("names"), ENDLESS, statements=statements), partition=0)
    steps: list[list[Row]] = []
    thread = threading.Thread(target=lambda: steps.append(scan.step(seconds=600, found_max=1)))
    thread.start()
    while thread.is_alive():
        scan.cancel()
        thread.join(0.05)
    assert (steps, scan.scanned) == ([[]], 0)


def test_a_condition_ends_when_its_search_is_cancelled(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "CONDITION_SECONDS_MAX", 600.0)
    filled(log, [[(0, "ada")]])
    cancelled(log, None)


@pytest.mark.process
def test_a_condition_runs_in_a_process_of_its_own_within_its_bounds(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(log, [[(0, "ada"), (0, "grace"), (0, "ada")]])
    topic = log.topic("names")
    with contextlib.closing(Statements(log.home, memory_max=64 * MIB, count_max=1)) as statements:

        def step(condition: str) -> list[int]:
            scan = Scan(log, "names", ConditionMatcher(topic, condition, statements=statements), newest_first=False)
            return [one.offset for one in scan.step(seconds=60, found_max=10)]

        assert step("number > 0 and name = 'ada'") == [2]
        with pytest.raises(ArgumentInvalid, match=r"`condition` is .length.* \(it takes more than 64 MiB\)"):
            step("length(repeat('a', 3000000000 + number)) > 0")
        with pytest.raises(ArgumentInvalid, match='"nothing" not found'):
            step("nothing = 1")
        monkeypatch.setattr(matching, "CONDITION_SECONDS_MAX", 600.0)
        cancelled(log, statements)
        monkeypatch.setattr(matching, "CONDITION_SECONDS_MAX", 0.5)
        with pytest.raises(ArgumentInvalid, match="it takes too long"):
            step(ENDLESS)
        monkeypatch.undo()
        assert step("number > 0") == [1, 2]


@pytest.mark.parametrize("pattern", ["(", "a{1001}", r"\1", "(?=x)"])
def test_a_pattern_that_is_wrong_is_refused_in_one_sentence(pattern: str) -> None:
    with pytest.raises(ArgumentInvalid, match="regular expression"):
        TextMatcher(pattern, is_pattern=True)


def test_a_search_counts_what_retention_takes_meanwhile(log: Log) -> None:
    log.create("short", SCHEMA, segment_bytes_max=4096)
    for number in range(40):
        log.append("short", [{"name": "x" * 200, "number": number}])
    scan = Scan(log, "short", TextMatcher("xxx"), newest_first=False, window_rows=4)
    found = scan.step(seconds=0, found_max=100)
    log.alter("short", retention=headwater.log.Retention(bytes_max=1))
    local_log(log).maintain("short", seal=True)
    while not scan.is_done:
        found += scan.step(seconds=0, found_max=100)
    assert scan.expired > 0
    assert len(found) + scan.expired == scan.total == 40
