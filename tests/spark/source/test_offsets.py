"""How far a batch goes: the laws of admission, and offsets that mean the same after every trip through a checkpoint."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.errors import SourceChanged
from headwater.spark.source.offsets import Offsets, Progress, admit, parts, ranges
from headwater.spark.source.options import _RULES, Options

COUNTS = st.integers(0, 1_000)
PLACES = st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.integers(0, 3), COUNTS, min_size=1))


def plus(start: Offsets, more: Offsets) -> Offsets:
    return {
        topic: {number: offset + more.get(topic, {}).get(number, 0) for number, offset in offsets.items()}
        for topic, offsets in start.items()
    }


def rows_between(start: Offsets, end: Offsets) -> int:
    return sum(end[topic][number] - start[topic][number] for topic in end for number in end[topic])


@given(start=PLACES, more=PLACES, rows_max=st.integers(1, 500))
def test_admission_moves_on_never_back_and_ends(start: Offsets, more: Offsets, rows_max: int) -> None:
    end, at, steps = plus(start, more), start, 0
    while at != end:
        to = admit(at, end, rows_max=rows_max, bytes_max=None, row_bytes={})
        assert all(at[t][n] <= to[t][n] <= end[t][n] for t in end for n in end[t])
        # Each partition may take one row, so that none stands still.
        assert rows_between(at, to) <= rows_max + sum(len(offsets) for offsets in end.values())
        assert rows_between(at, to) > 0
        at, steps = to, steps + 1
    assert steps <= 2 + 2 * rows_between(start, end) // rows_max


@given(more=PLACES, count=st.integers(1, 9))
def test_parts_cover_a_range_once_and_in_order(more: Offsets, count: int) -> None:
    wanted = ranges(Progress(), Progress(topics=more))
    found: dict[tuple[str, int], list[int]] = {}
    for topic, partition, start, stop, _ in parts(wanted, count):
        found.setdefault((topic, partition), []).extend(range(start, stop))
    assert found == {place: list(range(*edges)) for place, edges in wanted.items() if edges[0] < edges[1]}


@given(topics=PLACES, began=PLACES, told=PLACES, at_us=COUNTS)
def test_progress_survives_the_checkpoint(topics: Offsets, began: Offsets, told: Offsets, at_us: int) -> None:
    progress = Progress(topics=topics, ids={name: name for name in topics}, at_us=at_us, began=began, told=told)
    text = json.dumps(progress.to_json())
    assert Progress.from_json(json.loads(text)) == progress
    assert json.dumps(Progress.from_json(json.loads(text)).to_json()) == text


def test_a_checkpoint_of_another_kind_of_source_is_refused() -> None:
    with pytest.raises(SourceChanged, match="another kind of source"):
        Progress.from_json({"partition-1": 7})


def test_every_option_has_a_rule_and_every_rule_an_option() -> None:
    assert {name for name, _ in _RULES.values()} == {field.name for field in fields(Options)}
