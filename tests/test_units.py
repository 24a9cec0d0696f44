"""Sizes and durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, sampled_from

from headwater.errors import ArgumentInvalid
from headwater.units import GIB, MIB, format_bytes, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("64 MiB", 64 * MIB),
        ("64MiB", 64 * MIB),
        ("64 mib", 64 * MIB),
        ("10 GB", 10_000_000_000),
        ("1.5 GiB", 3 * GIB // 2),
        ("100_000", 100_000),
        (" 7 bytes ", 7),
        (0, 0),
    ],
)
def test_a_size_is_read_as_its_standard_says(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


def test_a_large_size_is_not_rounded() -> None:
    assert parse_bytes("9007199254740993") == 9_007_199_254_740_993


@pytest.mark.parametrize("text", ["", "MiB", "64 Mb/s", "-1", "1,5 GB", "64 parsecs", -1, True, 1.5, None])
def test_what_is_no_size_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ArgumentInvalid, match="64 MiB") as caught:
        parse_bytes(text, name="segment_bytes_max")  # type: ignore[arg-type]  # what callers without types may do
    assert caught.value.facts()["name"] == "segment_bytes_max"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7 days", 604_800.0),
        ("1 day", 86_400.0),
        ("500 ms", 0.5),
        ("5 ms", 0.005),
        ("1 h 30 min", 5_400.0),
        ("1h30m", 5_400.0),
        ("2 weeks", 1_209_600.0),
        ("10 µs", 0.00001),
        ("2.5", 2.5),
        (3, 3.0),
        (timedelta(minutes=1), 60.0),
    ],
)
def test_a_duration_is_read_in_its_unit(text: str | float | timedelta, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "1 h 30", "-5 s", -5, float("inf"), float("nan"), True, None, timedelta(-1)]
)
def test_what_is_no_duration_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ArgumentInvalid, match="7 days"):
        parse_seconds(text)  # type: ignore[arg-type]  # what callers without types may do


@given(count=integers(min_value=0, max_value=2**60))
def test_a_size_that_was_shown_reads_back_within_five_percent(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.05)


@given(number=integers(min_value=1, max_value=999), unit=sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_a_round_size_is_shown_as_it_was_written(number: int, unit: str) -> None:
    assert format_bytes(parse_bytes(f"{number} {unit}")) == f"{number} {unit}"


@given(seconds=floats(min_value=1e-6, max_value=1e9))
def test_a_duration_that_was_shown_reads_back_within_five_percent(seconds: float) -> None:
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("text", ["5 ms", "500 ms", "1 s", "1.5 min", "23 h", "1 day", "7 days", "0 s", "20 µs"])
def test_a_round_duration_is_shown_as_it_was_written(text: str) -> None:
    assert format_seconds(parse_seconds(text)) == text
