"""One contract for all operators in Spark: a stream gives what a batch job and the oracle give, through a kill and a restart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater import operators
from tests.operators.registry import ENTRIES, NO_OPERATORS, Entry
from tests.operators.stream_runs import Stream

CASES = [pytest.param(one, id=one.name, marks=[pytest.mark.core] if one.is_core else []) for one in ENTRIES]


@pytest.mark.parametrize("entry", CASES)
def test_a_stream_gives_what_the_bounded_rows_and_the_oracle_give_through_a_kill_and_a_restart(
    spark: SparkSession, tmp_path: Path, entry: Entry
) -> None:
    build: Callable[..., DataFrame] = entry.build
    if entry.tables:
        build = partial(build, log=str(tmp_path / "log"))
    stream = Stream(spark, tmp_path, build, entry.topics, **entry.options)
    with stream.log() as log:
        for name, declared in entry.tables.items():
            log.create(name, **{"durability": "os", **declared})
    told = dict(enumerate(entry.told))
    for number, batch in enumerate(entry.batches):
        stream.append(told.pop(number, {}))
        stream.run(batch, kill=number == 1)
        if number == 1:
            # What is told to the operator before the batch is repeated counts from the next batch on.
            stream.append(told.pop(2, {}))
            stream.restart()
    assert (stream.kills, stream.repeats) == (1, 1)
    wanted = entry.wanted()
    assert wanted, "an oracle that wants nothing proves nothing"
    assert entry.seen(stream.rows()) == wanted
    if entry.unbounded_because is None:
        assert entry.seen(stream.bounded()) == (entry.wanted_bounded or entry.wanted)()
    if entry.check is not None:
        entry.check(stream)


def test_every_operator_has_an_entry() -> None:
    covered = {name for entry in ENTRIES for name in entry.operators}
    assert covered | NO_OPERATORS.keys() == set(operators.__all__), "add an entry to tests/operators/registry"
    assert not covered & NO_OPERATORS.keys()


def test_entries_have_names_of_their_own() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
